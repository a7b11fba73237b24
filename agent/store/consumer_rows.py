"""The rows of who holds what: the part of a mirror that changes with the guests."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from sqlalchemy import Connection, Table, bindparam, delete, insert, select

from agent.model.allocation import Resources
from agent.model.mirror import Consumers, View
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.store.schema import MIRROR_CONSUMERS, MIRROR_UNKNOWN
from agent.store.texts import mapping_reader, mapping_text

# Made once, because making a statement costs more than running it.
HELD = select(MIRROR_CONSUMERS.c.provider, MIRROR_CONSUMERS.c.consumers).where(MIRROR_CONSUMERS.c.mirror == bindparam("the_mirror"))
UNKNOWN = select(MIRROR_UNKNOWN.c.consumer, MIRROR_UNKNOWN.c.since).where(MIRROR_UNKNOWN.c.mirror == bindparam("the_mirror"))

Holders = Mapping[ConsumerUuid, Resources]


def load(connection: Connection, mirror: int) -> tuple[Consumers, Mapping[ConsumerUuid, float]]:
    """Who held what, by provider, and since when nobody knows whom.

    :raises ValueError: the rows make no sense.
    """
    mapping = mapping_reader()
    here = {"the_mirror": mirror}
    held, unknown = connection.execute(HELD, here), connection.execute(UNKNOWN, here)
    consumers = {ProviderUuid(provider): cast(Holders, mapping(text)) for provider, text in held}
    return consumers, {ConsumerUuid(row.consumer): row.since for row in unknown}


def differ(old: View, new: View) -> bool:
    """Whether there is anything to write."""
    return old.consumers != new.consumers or old.unknown_since != new.unknown_since


def save(connection: Connection, mirror: int, old: View, new: View) -> None:
    """Write what differs from ``old``, whatever the database holds of the rest."""
    held = {uuid: mapping_text(cast(Mapping[str, Resources], one)) for uuid, one in new.consumers.items()}
    _write(connection, MIRROR_CONSUMERS, mirror, held, [uuid for uuid, one in new.consumers.items() if old.consumers.get(uuid) != one])
    _write(connection, MIRROR_UNKNOWN, mirror, new.unknown_since, [uuid for uuid, one in new.unknown_since.items() if old.unknown_since.get(uuid) != one])


def _write(connection: Connection, table: Table, mirror: int, values: Mapping[Any, Any], changed: Iterable[Any]) -> None:
    """Have one row for each of ``values``, writing only those that are ``changed`` or not there."""
    _, key, value = table.c
    stored = set(connection.execute(select(key).where(table.c.mirror == mirror)).scalars())
    written = {*changed, *(values.keys() - stored)}
    gone = [{"gone": one} for one in stored if one not in values or one in written]
    if gone:
        connection.execute(delete(table).where(table.c.mirror == mirror, key == bindparam("gone")), gone)
    if written:
        connection.execute(insert(table), [{"mirror": mirror, key.name: one, value.name: values[one]} for one in written])
