"""The rows of what is kept of Placement: the views of the trees of nodes, the capabilities of
servers, and the ownership journals.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.json import Decoder, Encoder
from sqlalchemy import Connection, Insert, Table, bindparam, exists, insert, select, update
from sqlalchemy.dialects import sqlite

from agent.errors import RecordConflict
from agent.model.inventory import Number, Resources
from agent.model.mirror import (
    Journal,
    Name,
    Ownership,
    PlacementView,
    ServerCapabilities,
)
from agent.model.names import ConsumerUuid, ProviderUuid, name_first
from agent.model.provider import Provider
from agent.model.provider_tree import PresentTree, ProviderTree
from agent.store.tables import (
    CAPABILITIES,
    COMPUTE_NODE,
    ENDPOINT,
    JOURNAL,
    MIRROR,
)


def _insert_or_update(connection: Connection, table: Table) -> Insert:
    """Return a statement that inserts a row or replaces the one with its key."""
    insert_into: Any = sqlite.insert
    if connection.dialect.name == "postgresql":
        # Imported here, because few stores are on a server, and it takes long.
        from sqlalchemy.dialects import postgresql

        insert_into = postgresql.insert
    statement = insert_into(table)
    keys = [column.name for column in table.primary_key]
    values = {name: statement.excluded[name] for name in table.c.keys() if name not in keys}  # noqa: SIM118 - of columns
    found: Insert = statement.on_conflict_do_update(index_elements=keys, set_=values)
    return found


# --- views of trees -------------------------------------------------------------------------------


def list_views(connection: Connection) -> list[tuple[str, ProviderUuid]]:
    """Return endpoint and root of every view."""
    rows = connection.execute(
        select(MIRROR.c.endpoint, MIRROR.c.root).order_by(*MIRROR.primary_key)
    )
    return [(endpoint, ProviderUuid(root)) for endpoint, root in rows]


@dataclass(frozen=True, slots=True)
class _SavedProvider:
    """One provider of a view."""

    uuid: ProviderUuid
    name: str
    generation: int | None
    parent_uuid: ProviderUuid | None
    inventory: Mapping[str, Mapping[str, Number]]
    traits: frozenset[str]
    aggregates: frozenset[str]


@dataclass(frozen=True, slots=True)
class _ViewContents:
    """The contents of a view as one text, see :class:`agent.model.mirror.PlacementView`."""

    providers: list[_SavedProvider]
    """In the order of the tree."""
    read_at: Mapping[ProviderUuid, float]
    sharing_read_at: float | None
    sharing_aggregates: frozenset[str]
    consumers: Mapping[ProviderUuid, Mapping[ConsumerUuid, Resources]]
    consumers_at: Mapping[ProviderUuid, float]
    unknown_since: Mapping[ConsumerUuid, float]


_VIEW, _ENCODER = Decoder(_ViewContents), Encoder(enc_hook=dict)


def load_view(connection: Connection, endpoint: str, root: ProviderUuid) -> PlacementView | None:
    """Return the saved view, ``None`` if there is none.

    :raises ValueError: the row is invalid, or its providers do not form a tree.
    """
    row = connection.execute(
        select(MIRROR.c.contents).where(MIRROR.c.endpoint == endpoint, MIRROR.c.root == root)
    ).one_or_none()
    if row is None:
        return None
    found, tree = _VIEW.decode(row.contents), ProviderTree()
    for one in found.providers:
        tree.insert(
            Provider(
                one.uuid,
                one.name,
                one.generation,
                one.parent_uuid,
                one.inventory,
                one.traits,
                one.aggregates,
            )
        )
    return PlacementView(
        PresentTree(tree.freeze()),
        found.read_at,
        found.sharing_read_at,
        found.sharing_aggregates,
        found.consumers,
        found.consumers_at,
        found.unknown_since,
    )


def view_differs(old: PlacementView, new: PlacementView) -> bool:
    """Return whether a save would write anything else."""
    return _view_contents(old) != _view_contents(new)


def save_views(
    connection: Connection, views: Iterable[tuple[str, ProviderUuid, PlacementView]]
) -> None:
    """Write the rows of views, each given with endpoint and root."""
    rows = [
        {
            "endpoint": endpoint,
            "root": root,
            "contents": _ENCODER.encode(_view_contents(view)).decode(),
        }
        for endpoint, root, view in views
    ]
    connection.execute(_insert_or_update(connection, MIRROR), rows)


def _view_contents(view: PlacementView) -> _ViewContents:
    return _ViewContents(
        [
            _SavedProvider(
                provider.uuid,
                provider.name,
                provider.generation,
                provider.parent_uuid,
                provider.inventory,
                frozenset(provider.traits),
                frozenset(provider.aggregates),
            )
            for provider in view.tree.providers()
        ],
        view.read_at,
        view.sharing_read_at,
        view.sharing_aggregates,
        view.consumers,
        view.consumers_at,
        view.unknown_since,
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


_JOURNAL = Decoder(_JournalContents)


def load_journal(connection: Connection, root: ProviderUuid) -> Journal:
    """Return the journal of a node, empty if there is none.

    :raises ValueError: the row is invalid.
    """
    row = connection.execute(select(JOURNAL).where(JOURNAL.c.root == root)).one_or_none()
    if row is None:
        return Journal()
    found = _JOURNAL.decode(row.contents)
    names = frozenset(found.names)
    return Journal(found.providers, found.adopted, found.held, row.version, names)


_UPDATE_JOURNAL = update(JOURNAL).where(
    JOURNAL.c.root == bindparam("node"), JOURNAL.c.version == bindparam("expected")
)


def save_journals(connection: Connection, journals: Iterable[tuple[ProviderUuid, Journal]]) -> None:
    """Write the journals of nodes; each has the next version afterwards.

    :raises RecordConflict: the database holds another version of one of them.
    """
    new, old = list[dict[str, Any]](), list[dict[str, Any]]()
    for root, journal in journals:
        contents = _JournalContents(
            dict(journal.providers), journal.adopted, dict(journal.held), sorted(journal.names)
        )
        row = {
            "version": journal.version + 1,
            "empty": not (journal.providers or journal.held),
            "contents": _ENCODER.encode(contents).decode(),
        }
        if journal.version == 0:
            new.append({"root": root, **row})
        else:
            old.append({"node": root, "expected": journal.version, **row})
    if new:
        connection.execute(insert(JOURNAL), new)
    if old and connection.execute(_UPDATE_JOURNAL, old).rowcount != len(old):
        nodes = name_first(sorted(row["node"] for row in old))
        raise RecordConflict(
            f"the journal of node {nodes} was changed by somebody else meanwhile",
            table=JOURNAL.name,
        )


def roots(connection: Connection, host: str) -> frozenset[ProviderUuid]:
    """Return the nodes whose journal is not empty, without those that are recorded as another
    host's.
    """
    others = exists().where(COMPUTE_NODE.c.uuid == JOURNAL.c.root, COMPUTE_NODE.c.host != host)
    statement = select(JOURNAL.c.root).where(~JOURNAL.c.empty, ~others)
    return frozenset(connection.execute(statement).scalars())
