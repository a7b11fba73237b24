"""The rows of what is kept of Placement: the views of the trees of nodes, the capabilities of
servers, and the ownership journals; and of what audits found last.
"""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
from msgspec.json import Decoder, Encoder
from sqlalchemy import (
    Connection,
    Insert,
    Table,
    bindparam,
    delete,
    exists,
    insert,
    select,
    update,
)
from sqlalchemy.dialects import sqlite

from agent.errors import RecordConflict
from agent.model.mirror import Journal, PlacementView, ServerCapabilities
from agent.model.names import ProviderUuid, name_first
from agent.model.provider_tree import Provider, ProviderTree
from agent.model.report import LastFound
from agent.store.record_table import NONSENSE
from agent.store.tables import (
    CAPABILITIES,
    COMPUTE_NODE,
    ENDPOINT,
    FOUND,
    JOURNAL,
    LAST_AUDIT,
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


def _to_text(value: object) -> Any:
    """Return what msgspec encodes in place of a value of a type that it does not know."""
    return _saved(value) if isinstance(value, ProviderTree) else dict(value)  # type: ignore[call-overload] # a mapping


def _saved(tree: ProviderTree) -> list[Provider]:
    """Return the providers in the order of the tree, without their local resources."""
    return [replace(provider, resources={}) for provider in tree.providers()]


def _to_tree(_kind: type, providers: Any) -> ProviderTree:
    """Return the frozen tree of these providers, which are in its order.

    :raises ValueError: they do not form a tree.
    """
    tree = ProviderTree()
    for provider in msgspec.convert(providers, list[Provider]):
        tree.insert(provider)
    return tree.freeze()


_VIEW, _ENCODER = Decoder(PlacementView, dec_hook=_to_tree), Encoder(enc_hook=_to_text)


def load_view(connection: Connection, endpoint: str, root: ProviderUuid) -> PlacementView | None:
    """Return the saved view, ``None`` if there is none.

    :raises ValueError: the row is invalid, or its providers do not form a tree.
    """
    row = connection.execute(
        select(MIRROR.c.contents).where(MIRROR.c.endpoint == endpoint, MIRROR.c.root == root)
    ).one_or_none()
    return None if row is None else _VIEW.decode(row.contents)


def view_differs(old: PlacementView, new: PlacementView) -> bool:
    """Return whether a save would write anything else."""
    rest = replace(new, tree=old.tree, above=old.above)
    return old != rest or _saved(old.tree) != _saved(new.tree)


def save_views(
    connection: Connection, views: Iterable[tuple[str, ProviderUuid, PlacementView]]
) -> None:
    """Write the rows of views, each given with endpoint and root."""
    rows = [
        {
            "endpoint": endpoint,
            "root": root,
            "contents": _ENCODER.encode(replace(view, above=None)).decode(),
        }
        for endpoint, root, view in views
    ]
    connection.execute(_insert_or_update(connection, MIRROR), rows)


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


_JOURNAL = Decoder(Journal)


def load_journal(connection: Connection, root: ProviderUuid) -> Journal:
    """Return the journal of a node, empty if there is none.

    :raises ValueError: the row is invalid.
    """
    row = connection.execute(select(JOURNAL).where(JOURNAL.c.root == root)).one_or_none()
    if row is None:
        return Journal()
    return replace(_JOURNAL.decode(row.contents), version=row.version)


_UPDATE_JOURNAL = update(JOURNAL).where(
    JOURNAL.c.root == bindparam("node"), JOURNAL.c.version == bindparam("expected")
)


def save_journals(connection: Connection, journals: Iterable[tuple[ProviderUuid, Journal]]) -> None:
    """Write the journals of nodes; each has the next version afterwards.

    :raises RecordConflict: the database holds another version of one of them.
    """
    new, old = list[dict[str, Any]](), list[dict[str, Any]]()
    for root, journal in journals:
        row = {
            "version": journal.version + 1,
            "empty": not (journal.providers or journal.held),
            "contents": _ENCODER.encode(journal).decode(),
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


# --- what audits found ----------------------------------------------------------------------------


def load_found(connection: Connection, host: str) -> list[LastFound]:
    """Return what audits found last of each node of a host; what cannot be understood is left out,
    because the next audit writes it anew.
    """
    found = []
    for row in connection.execute(select(*LAST_AUDIT.c).where(LAST_AUDIT.c.host == host)):
        with suppress(*NONSENSE):
            found.append(FOUND.value(row))
    return found


def save_found(
    connection: Connection, host: str, found: Sequence[LastFound], gone: Collection[str]
) -> None:
    """Save what audits found last of nodes of a host, and forget the nodes ``gone``."""
    if found:
        rows = [FOUND.row(one) for one in found]
        connection.execute(_insert_or_update(connection, LAST_AUDIT), rows)
    if gone:
        of_host = LAST_AUDIT.c.host == host
        connection.execute(delete(LAST_AUDIT).where(of_host, LAST_AUDIT.c.root.in_(gone)))
