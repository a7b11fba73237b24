"""The rows of consumers and what they hold: the part of a mirror that changes with the guests."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from sqlalchemy import Column, Connection, Table, bindparam, delete, insert, select

from agent.model.allocation import Resources
from agent.model.mirror import Consumers, PlacementView
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.store.schema import MIRROR_CONSUMERS, MIRROR_UNKNOWN
from agent.store.texts import mapping_reader, mapping_text

# Built once, because building a statement costs more than executing it.
HELD = select(
    MIRROR_CONSUMERS.c.provider, MIRROR_CONSUMERS.c.consumers, MIRROR_CONSUMERS.c.asked_at
).where(MIRROR_CONSUMERS.c.mirror == bindparam("the_mirror"))
UNKNOWN = select(MIRROR_UNKNOWN.c.consumer, MIRROR_UNKNOWN.c.since).where(
    MIRROR_UNKNOWN.c.mirror == bindparam("the_mirror")
)

Holders = Mapping[ConsumerUuid, Resources]


def load(
    connection: Connection, mirror: int
) -> tuple[Consumers, Mapping[ProviderUuid, float], Mapping[ConsumerUuid, float]]:
    """Return the consumers by provider, when they were read, and since when consumers have no
    record.

    :raises ValueError: the rows are invalid.
    """
    mapping = mapping_reader()
    here = {"the_mirror": mirror}
    held, unknown = connection.execute(HELD, here).all(), connection.execute(UNKNOWN, here)
    consumers = {ProviderUuid(provider): cast(Holders, mapping(text)) for provider, text, _ in held}
    read_at = {ProviderUuid(provider): at for provider, _, at in held if at is not None}
    return consumers, read_at, {ConsumerUuid(row.consumer): row.since for row in unknown}


def differ(old: PlacementView, new: PlacementView) -> bool:
    """Return whether a save would write anything."""
    return (old.consumers, old.consumers_at, old.unknown_since) != (
        new.consumers,
        new.consumers_at,
        new.unknown_since,
    )


def save(connection: Connection, mirror: int, old: PlacementView, new: PlacementView) -> None:
    """Write what differs from ``old``, and rows that the database lacks."""
    held = {
        uuid: {
            "consumers": mapping_text(cast(Mapping[str, Resources], holders)),
            "asked_at": new.consumers_at.get(uuid),
        }
        for uuid, holders in new.consumers.items()
    }
    changed = [
        uuid
        for uuid, holders in new.consumers.items()
        if (old.consumers.get(uuid), old.consumers_at.get(uuid))
        != (holders, new.consumers_at.get(uuid))
    ]
    _write(connection, MIRROR_CONSUMERS, MIRROR_CONSUMERS.c.provider, mirror, held, changed)
    unknown = {uuid: {"since": since} for uuid, since in new.unknown_since.items()}
    differing = [
        uuid for uuid, since in new.unknown_since.items() if old.unknown_since.get(uuid) != since
    ]
    _write(connection, MIRROR_UNKNOWN, MIRROR_UNKNOWN.c.consumer, mirror, unknown, differing)


def _write(
    connection: Connection,
    table: Table,
    key: Column[str],
    mirror: int,
    values: Mapping[Any, Mapping[str, Any]],
    changed: Iterable[Any],
) -> None:
    """Have one row for each of ``values``, writing only those that are ``changed`` or missing."""
    stored = set(connection.execute(select(key).where(table.c.mirror == mirror)).scalars())
    written = {*changed, *(values.keys() - stored)}
    gone = [{"gone": uuid} for uuid in stored if uuid not in values or uuid in written]
    if gone:
        connection.execute(
            delete(table).where(table.c.mirror == mirror, key == bindparam("gone")), gone
        )
    if written:
        connection.execute(
            insert(table), [{"mirror": mirror, key.name: uuid, **values[uuid]} for uuid in written]
        )
