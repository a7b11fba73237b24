"""The rows of what is kept of Placement: the views of the trees of nodes, the capabilities of
servers, and the ownership journals.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.json import Decoder, Encoder
from sqlalchemy import Connection, Insert, Table, bindparam, delete, exists, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from agent.errors import RecordConflict
from agent.model.mirror import (
    Journal,
    Name,
    Ownership,
    PlacementView,
    ServerCapabilities,
)
from agent.model.names import ProviderUuid
from agent.model.provider import Provider
from agent.model.provider_tree import PresentTree, ProviderTree
from agent.store.tables import (
    CAPABILITIES,
    COMPUTE_NODE,
    ENDPOINT,
    HEADERS,
    JOURNAL,
    MIRROR,
    MIRROR_PROVIDER,
    PROVIDERS,
    MirrorHeader,
    MirrorProvider,
)

# Built once, because building a statement costs more than executing it.
HEADER = select(*(MIRROR.c[name] for name in HEADERS.names)).where(
    MIRROR.c.endpoint == bindparam("endpoint"), MIRROR.c.root == bindparam("root")
)
ROWS = select(*(MIRROR_PROVIDER.c[name] for name in PROVIDERS.names)).where(
    MIRROR_PROVIDER.c.endpoint == bindparam("endpoint"), MIRROR_PROVIDER.c.root == bindparam("root")
)
DELETE_VIEW = delete(MIRROR).where(
    MIRROR.c.endpoint == bindparam("endpoint"), MIRROR.c.root == bindparam("root")
)
DELETE_ROW = delete(MIRROR_PROVIDER).where(
    MIRROR_PROVIDER.c.endpoint == bindparam("endpoint"),
    MIRROR_PROVIDER.c.root == bindparam("root"),
    MIRROR_PROVIDER.c.uuid == bindparam("gone"),
)


def _insert_or_update(connection: Connection, table: Table) -> Insert:
    """Return a statement that inserts a row or replaces the one with its key."""
    server = connection.dialect.name == "postgresql"
    statement = postgresql.insert(table) if server else sqlite.insert(table)
    keys = [column.name for column in table.primary_key]
    values = {name: statement.excluded[name] for name in table.c.keys() if name not in keys}  # noqa: SIM118 - of columns
    return statement.on_conflict_do_update(index_elements=keys, set_=values)


# --- views of trees -------------------------------------------------------------------------------


def list_views(connection: Connection) -> list[tuple[str, ProviderUuid]]:
    """Return endpoint and root of every view."""
    rows = connection.execute(
        select(MIRROR.c.endpoint, MIRROR.c.root).order_by(*MIRROR.primary_key)
    )
    return [(endpoint, ProviderUuid(root)) for endpoint, root in rows]


def load_view(connection: Connection, endpoint: str, root: ProviderUuid) -> PlacementView | None:
    """Return the saved view, ``None`` if there is none.

    :raises ValueError: the rows do not form a tree.
    """
    here = {"endpoint": endpoint, "root": root}
    found = connection.execute(HEADER, here).one_or_none()
    if found is None:
        return None
    header = HEADERS.value(found)
    rows = [PROVIDERS.value(row) for row in connection.execute(ROWS, here)]
    return PlacementView(
        tree=PresentTree(_tree(header, {row.uuid: row for row in rows})),
        read_at={row.uuid: row.read_at for row in rows if row.read_at is not None},
        sharing_read_at=header.sharing_read_at,
        sharing_aggregates=header.sharing_aggregates,
        consumers={row.uuid: row.consumers for row in rows if row.consumers is not None},
        consumers_at={row.uuid: row.consumers_at for row in rows if row.consumers_at is not None},
        unknown_since=header.unknown_since,
    )


def _tree(header: MirrorHeader, rows: Mapping[ProviderUuid, MirrorProvider]) -> ProviderTree:
    if set(header.providers) != rows.keys():
        raise ValueError("some providers of a saved tree are missing")
    tree = ProviderTree()
    for uuid in header.providers:
        row = rows[uuid]
        tree.insert(
            Provider(
                row.uuid,
                row.name,
                row.generation,
                row.parent_uuid,
                row.inventory,
                row.traits,
                row.aggregates,
            )
        )
    return tree.freeze()


def view_differs(old: PlacementView, new: PlacementView) -> bool:
    """Return whether a save would write anything."""
    return _header(old) != _header(new) or any(True for _ in _changed(old, new))


def save_view(
    connection: Connection,
    endpoint: str,
    root: ProviderUuid,
    old: PlacementView | None,
    new: PlacementView,
) -> None:
    """Write what differs from ``old``; everything if ``old`` is not what the database holds."""
    here: dict[str, Any] = {"endpoint": endpoint, "root": root}
    stored = connection.execute(HEADER, here).one_or_none()
    known = HEADERS.value(stored) if stored is not None else None
    if known is None or old is None or set(known.providers) != {*old.tree.get_provider_uuids()}:
        connection.execute(DELETE_VIEW, here)
        known, old = None, PlacementView()
    header = _header(new)
    if header != known:
        connection.execute(_insert_or_update(connection, MIRROR), {**here, **HEADERS.row(header)})
    if known and (gone := {*known.providers}.difference(header.providers)):
        connection.execute(DELETE_ROW, [{**here, "gone": uuid} for uuid in gone])
    if changed := [{**here, **PROVIDERS.row(row)} for row in _changed(old, new)]:
        connection.execute(_insert_or_update(connection, MIRROR_PROVIDER), changed)


def _changed(old: PlacementView, new: PlacementView) -> Iterator[MirrorProvider]:
    for uuid in new.tree.get_provider_uuids():
        row = _row(new, uuid)
        if not old.tree.exists(uuid) or _row(old, uuid) != row:
            yield row


def _header(view: PlacementView) -> MirrorHeader:
    return MirrorHeader(
        view.sharing_read_at,
        view.sharing_aggregates,
        view.unknown_since,
        tuple(provider.uuid for provider in view.tree.providers()),
    )


def _row(view: PlacementView, uuid: ProviderUuid) -> MirrorProvider:
    provider = view.tree.provider(uuid)
    return MirrorProvider(
        uuid,
        provider.name,
        provider.generation,
        provider.parent_uuid,
        provider.inventory,
        frozenset(provider.traits),
        frozenset(provider.aggregates),
        view.read_at.get(uuid),
        view.consumers.get(uuid),
        view.consumers_at.get(uuid),
    )


# --- capabilities of servers ----------------------------------------------------------------------


def load_capabilities(connection: Connection, endpoint: str) -> ServerCapabilities | None:
    """Return the capabilities of a server, ``None`` if there are none.

    :raises ValueError: the row is invalid.
    """
    row = connection.execute(select(ENDPOINT).where(ENDPOINT.c.endpoint == endpoint)).one_or_none()
    return CAPABILITIES.value(row) if row is not None else None


def save_capabilities(connection: Connection, capabilities: ServerCapabilities) -> None:
    """Write the row of a server."""
    connection.execute(_insert_or_update(connection, ENDPOINT), CAPABILITIES.row(capabilities))


# --- ownership journals ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _JournalContents:
    """The contents of a journal as one text."""

    providers: dict[ProviderUuid, Ownership] = field(default_factory=dict)
    adopted: bool = False
    held: dict[ProviderUuid, frozenset[str]] = field(default_factory=dict)
    names: list[Name] = field(default_factory=list)


_CONTENTS, _ENCODER = Decoder(_JournalContents), Encoder()


def load_journal(connection: Connection, root: ProviderUuid) -> Journal:
    """Return the journal of a node, empty if there is none.

    :raises ValueError: the row is invalid.
    """
    row = connection.execute(select(JOURNAL).where(JOURNAL.c.root == root)).one_or_none()
    if row is None:
        return Journal()
    found = _CONTENTS.decode(row.contents)
    names = frozenset(found.names)
    return Journal(found.providers, found.adopted, found.held, row.version, names)


def save_journal(
    connection: Connection, root: ProviderUuid, version: int, journal: Journal
) -> None:
    """Write the journal, which has the next version afterwards.

    :raises RecordConflict: the database holds another version than ``version``.
    """
    contents = _JournalContents(
        dict(journal.providers), journal.adopted, dict(journal.held), sorted(journal.names)
    )
    values = {
        "version": version + 1,
        "empty": not (journal.providers or journal.held),
        "contents": _ENCODER.encode(contents).decode(),
    }
    if version == 0:
        connection.execute(insert(JOURNAL).values(root=root, **values))
    elif not connection.execute(
        update(JOURNAL).where(JOURNAL.c.root == root, JOURNAL.c.version == version).values(values)
    ).rowcount:
        raise journal_conflict(root)


def roots(connection: Connection, host: str) -> frozenset[ProviderUuid]:
    """Return the nodes whose journal is not empty, without those that are recorded as another
    host's.
    """
    others = exists().where(COMPUTE_NODE.c.uuid == JOURNAL.c.root, COMPUTE_NODE.c.host != host)
    statement = select(JOURNAL.c.root).where(~JOURNAL.c.empty, ~others)
    return frozenset(connection.execute(statement).scalars())


def journal_conflict(root: ProviderUuid) -> RecordConflict:
    """Return the error for a journal that another agent wrote since it was read."""
    return RecordConflict(
        f"the journal of node {root} was changed by somebody else meanwhile",
        table=JOURNAL.name,
        key=root,
    )
