"""The rows of the mirror: views of the trees of nodes with the consumers and what they hold, and
the capabilities of servers.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from sqlalchemy import Column, Connection, Table, bindparam, delete, insert, select, update

from agent.model.allocation import Resources
from agent.model.mirror import Consumers, PlacementView, ServerCapabilities
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.provider import Provider
from agent.model.provider_tree import PresentTree, ProviderTree
from agent.store.rows import insert_or_update
from agent.store.schema import ENDPOINT, MIRROR, MIRROR_CONSUMERS, MIRROR_PROVIDER, MIRROR_UNKNOWN
from agent.store.texts import mapping_reader, mapping_text, names_of, names_text

# Built once, because building a statement costs more than executing it.
HELD = select(
    MIRROR_CONSUMERS.c.provider, MIRROR_CONSUMERS.c.consumers, MIRROR_CONSUMERS.c.asked_at
).where(MIRROR_CONSUMERS.c.mirror == bindparam("the_mirror"))
UNKNOWN = select(MIRROR_UNKNOWN.c.consumer, MIRROR_UNKNOWN.c.since).where(
    MIRROR_UNKNOWN.c.mirror == bindparam("the_mirror")
)

Holders = Mapping[ConsumerUuid, Resources]


def load_consumers(
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


def consumers_differ(old: PlacementView, new: PlacementView) -> bool:
    """Return whether a save would write anything."""
    return (old.consumers, old.consumers_at, old.unknown_since) != (
        new.consumers,
        new.consumers_at,
        new.unknown_since,
    )


def save_consumers(
    connection: Connection, mirror: int, old: PlacementView, new: PlacementView, *, empty: bool
) -> None:
    """Write what differs from ``old``, and rows that the database lacks. ``empty``: it has none of
    the mirror.
    """
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
    _write(connection, CONSUMER_ROWS, mirror, held, changed, empty=empty)
    unknown = {uuid: {"since": since} for uuid, since in new.unknown_since.items()}
    differing = [
        uuid for uuid, since in new.unknown_since.items() if old.unknown_since.get(uuid) != since
    ]
    _write(connection, UNKNOWN_ROWS, mirror, unknown, differing, empty=empty)


class _Rows:
    """The statements on the rows of one mirror in ``table``, which has one for each ``key``. Built
    once, because building a statement costs more than executing it.
    """

    def __init__(self, table: Table, key: Column[str]) -> None:
        self.key = key.name
        here = table.c.mirror == bindparam("the_mirror")
        self.keys = select(key).where(here)
        self.delete = delete(table).where(here, key == bindparam("gone"))
        self.insert = insert(table)


CONSUMER_ROWS = _Rows(MIRROR_CONSUMERS, MIRROR_CONSUMERS.c.provider)
UNKNOWN_ROWS = _Rows(MIRROR_UNKNOWN, MIRROR_UNKNOWN.c.consumer)


def _write(
    connection: Connection,
    rows: _Rows,
    mirror: int,
    values: Mapping[Any, Mapping[str, Any]],
    changed: Iterable[Any],
    *,
    empty: bool,
) -> None:
    """Have one row for each of ``values``, writing only those that are ``changed`` or missing.
    ``empty``: there are none.
    """
    stored = set()
    if not empty:
        stored = set(connection.execute(rows.keys, {"the_mirror": mirror}).scalars())
    written = {*changed, *(values.keys() - stored)}
    gone = {uuid for uuid in stored if uuid not in values or uuid in written}
    _replace(connection, rows, mirror, gone, [{rows.key: uuid, **values[uuid]} for uuid in written])


def _replace(
    connection: Connection,
    rows: _Rows,
    mirror: int,
    gone: Iterable[str],
    written: Iterable[Mapping[str, Any]],
) -> None:
    """Delete the rows of the keys ``gone``, then insert those that are ``written``."""
    if deleted := [{"the_mirror": mirror, "gone": key} for key in gone]:
        connection.execute(rows.delete, deleted)
    if inserted := [{"mirror": mirror, **row} for row in written]:
        connection.execute(rows.insert, inserted)


# Built once, because building a statement costs more than executing it.
THE_VIEW = (
    MIRROR.c.endpoint == bindparam("the_endpoint"),
    MIRROR.c.root == bindparam("the_root"),
)
VIEW = select(MIRROR).where(*THE_VIEW)
VIEW_ID = select(MIRROR.c.id).where(*THE_VIEW)
DELETE_VIEW = delete(MIRROR).where(*THE_VIEW)
INSERT_VIEW = insert(MIRROR).returning(MIRROR.c.id)
PROVIDER_ROWS = _Rows(MIRROR_PROVIDER, MIRROR_PROVIDER.c.uuid)
ORDINALS = select(MIRROR_PROVIDER.c.uuid, MIRROR_PROVIDER.c.ordinal).where(
    MIRROR_PROVIDER.c.mirror == bindparam("the_mirror")
)
PROVIDERS = (
    select(
        MIRROR_PROVIDER.c.uuid,
        MIRROR_PROVIDER.c.name,
        MIRROR_PROVIDER.c.parent,
        MIRROR_PROVIDER.c.generation,
        MIRROR_PROVIDER.c.inventory,
        MIRROR_PROVIDER.c.traits,
        MIRROR_PROVIDER.c.aggregates,
        MIRROR_PROVIDER.c.read_at,
    )
    .where(MIRROR_PROVIDER.c.mirror == bindparam("the_mirror"))
    .order_by(MIRROR_PROVIDER.c.ordinal)
)

Ordinals = Mapping[ProviderUuid, int]


def list_views(connection: Connection) -> list[tuple[str, ProviderUuid]]:
    """Return endpoint and root of every view, in the order in which they were first saved."""
    rows = connection.execute(select(MIRROR.c.endpoint, MIRROR.c.root).order_by(MIRROR.c.id))
    return [(endpoint, ProviderUuid(root)) for endpoint, root in rows]


def load_view(connection: Connection, endpoint: str, root: ProviderUuid) -> PlacementView | None:
    """Return the saved view, ``None`` if there is none.

    :raises ValueError: the rows do not form a tree.
    """
    found = connection.execute(VIEW, _of_view(endpoint, root)).one_or_none()
    if found is None:
        return None
    rows = connection.execute(PROVIDERS, {"the_mirror": found.id})
    mapping, read_at = mapping_reader(), {}
    children: dict[ProviderUuid | None, list[Provider]] = {}
    for row in rows:
        provider = Provider(
            uuid=row.uuid,
            name=row.name,
            generation=row.generation,
            parent_uuid=row.parent,
            inventory=mapping(row.inventory),
            traits=names_of(row.traits),
            aggregates=names_of(row.aggregates),
        )
        children.setdefault(row.parent, []).append(provider)
        if row.read_at is not None:
            read_at[row.uuid] = row.read_at
    consumers, consumers_at, unknown_since = load_consumers(connection, found.id)
    return PlacementView(
        tree=PresentTree(_tree(children)),
        read_at=read_at,
        sharing_read_at=found.sharing_read_at,
        sharing_aggregates=names_of(found.sharing_aggregates),
        consumers=consumers,
        consumers_at=consumers_at,
        unknown_since=unknown_since,
    )


def _tree(children: Mapping[ProviderUuid | None, list[Provider]]) -> ProviderTree:
    tree, ready = ProviderTree(), list(children.get(None, ()))
    for provider in ready:
        tree.insert(provider)
        ready.extend(children.get(provider.uuid, ()))
    if len(ready) != sum(map(len, children.values())):
        raise ValueError("some providers of a saved tree have no parent in it")
    return tree.freeze()


def view_differs(old: PlacementView, new: PlacementView) -> bool:
    """Return whether a save would write anything."""
    return (
        _header(old) != _header(new)
        or (
            old.tree is not new.tree
            and old.tree.get_provider_uuids() != new.tree.get_provider_uuids()
        )
        or any(True for _ in _changed_providers(old, new))
        or consumers_differ(old, new)
    )


def save_view(
    connection: Connection,
    endpoint: str,
    root: ProviderUuid,
    old: PlacementView | None,
    new: PlacementView,
) -> None:
    """Write what differs from ``old``; everything if ``old`` is not what the database holds."""
    here = _of_view(endpoint, root)
    mirror = connection.execute(VIEW_ID, here).scalar_one_or_none()
    stored = {} if mirror is None else _ordinals(connection, mirror)
    if empty := (
        old is None or mirror is None or stored.keys() != set(old.tree.get_provider_uuids())
    ):
        if mirror is not None:
            connection.execute(DELETE_VIEW, here)
        row = {"endpoint": endpoint, "root": root, **_header(new)}
        mirror = connection.execute(INSERT_VIEW, row).scalar_one()
        old, stored = PlacementView(), {}
    elif _header(old) != _header(new):
        connection.execute(update(MIRROR).where(MIRROR.c.id == mirror).values(_header(new)))
    ordinals = _renumber(new.tree, stored)
    written = {provider.uuid for provider in _changed_providers(old, new)} | {
        uuid for uuid, ordinal in ordinals.items() if stored.get(uuid) != ordinal
    }
    _replace(
        connection,
        PROVIDER_ROWS,
        mirror,
        (stored.keys() - ordinals.keys()) | (stored.keys() & written),
        [
            {"ordinal": ordinals[uuid], **_row(new, new.tree.provider(uuid))}
            for uuid in ordinals
            if uuid in written
        ],
    )
    save_consumers(connection, mirror, old, new, empty=empty)


def _of_view(endpoint: str, root: ProviderUuid) -> Mapping[str, str]:
    return {"the_endpoint": endpoint, "the_root": root}


def _ordinals(connection: Connection, mirror: int) -> Ordinals:
    rows = connection.execute(ORDINALS, {"the_mirror": mirror})
    return {ProviderUuid(uuid): ordinal for uuid, ordinal in rows}


def _renumber(tree: ProviderTree, stored: Ordinals) -> dict[ProviderUuid, int]:
    """Return an ordinal for each provider, increasing among siblings; most keep theirs, so that
    their rows need not be written.
    """
    numbers: dict[ProviderUuid, int] = {}
    last: dict[ProviderUuid | None, int] = {}
    following = max(stored.values(), default=-1) + 1
    for provider in tree.providers():
        number = stored.get(provider.uuid, -1)
        if number <= last.get(provider.parent_uuid, -1):
            number, following = following, following + 1
        numbers[provider.uuid] = last[provider.parent_uuid] = number
    return numbers


def _changed_providers(old: PlacementView, new: PlacementView) -> Iterator[Provider]:
    for provider in new.tree.providers():
        if not old.tree.exists(provider.uuid):
            yield provider
            continue
        before = old.tree.provider(provider.uuid)
        if old.read_at.get(provider.uuid) != new.read_at.get(provider.uuid) or (
            before is not provider and _contents(before) != _contents(provider)
        ):
            yield provider


def _contents(provider: Provider) -> tuple[object, ...]:
    return (
        provider.name,
        provider.parent_uuid,
        provider.generation,
        provider.inventory,
        provider.traits,
        provider.aggregates,
    )


def _header(view: PlacementView) -> dict[str, Any]:
    return {
        "sharing_read_at": view.sharing_read_at,
        "sharing_aggregates": names_text(view.sharing_aggregates),
    }


def _row(view: PlacementView, provider: Provider) -> dict[str, Any]:
    return {
        "uuid": provider.uuid,
        "name": provider.name,
        "parent": provider.parent_uuid,
        "generation": provider.generation,
        "inventory": mapping_text(provider.inventory),
        "traits": names_text(provider.traits),
        "aggregates": names_text(provider.aggregates),
        "read_at": view.read_at.get(provider.uuid),
    }


# --- capabilities of servers ----------------------------------------------------------------------


def load_capabilities(connection: Connection, endpoint: str) -> ServerCapabilities | None:
    """Return the capabilities of a server, ``None`` if there are none.

    :raises ValueError: the row is invalid.
    """
    found = connection.execute(
        select(ENDPOINT).where(ENDPOINT.c.endpoint == endpoint)
    ).one_or_none()
    if found is None:
        return None
    return ServerCapabilities(
        endpoint=found.endpoint,
        max_version=found.max_version,
        traits=names_of(found.traits),
        classes=names_of(found.classes),
        unknown_traits=mapping_reader()(found.unknown_traits),
        can_reshape=found.can_reshape,
    )


def save_capabilities(connection: Connection, capabilities: ServerCapabilities) -> None:
    """Write the row of a server."""
    row = {
        "endpoint": capabilities.endpoint,
        "max_version": capabilities.max_version,
        "can_reshape": capabilities.can_reshape,
        "traits": names_text(capabilities.traits),
        "classes": names_text(capabilities.classes),
        "unknown_traits": mapping_text(capabilities.unknown_traits),
    }
    connection.execute(insert_or_update(connection, ENDPOINT), row)
