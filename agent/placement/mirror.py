"""The mirror: keeps a view of one node's tree true with one request a pass, reading in full only what moved."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from agent.model.mirror import View
from agent.model.names import ProviderUuid
from agent.model.provider_tree import Provider, ProviderTree
from agent.placement.client import Client, Row
from agent.placement.reading import read_providers

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Freshness:
    """How old knowledge may be, in seconds. ``reread`` 0: never by age. ``sharing`` 0: asked for once.

    ``everything`` trusts nothing that was saved.
    """

    sharing: float = 300
    reread: float = 0
    everything: bool = False


def refreshed(
    client: Client, view: View, root: ProviderUuid, now: float, freshness: Freshness, suspects: Iterable[str] = (), rows: Sequence[Row] | None = None,
) -> View:  # fmt: skip
    """``view`` as Placement has it now; the same object if nothing moved.

    ``suspects`` are read in full whatever their generation says, because an own write's outcome is unknown. ``rows``:
    the structure, if a list for many nodes already brought it.
    """
    rows = below(client.tree(root) if rows is None else rows, root)
    if freshness.everything or _went_back(view, rows, root):
        view = View(unknown_since=view.unknown_since)
    known = view.tree.subtree(root) if view.tree.exists(root) else ProviderTree()
    suspects = set(suspects) | _overdue(view, rows, now, freshness.reread)
    moved = [row for row in rows if row.uuid in suspects or not known.exists(row.uuid) or known.provider(row.uuid).generation != row.generation]
    read = read_providers(client, moved)
    if not read and not _restructured(known, rows):
        tree = view.tree
    else:
        tree = _assembled(known, rows, read)
        for one in _foreign_roots(view.tree, root):
            _add_root(tree, one)
    read_at = {row.uuid: view.read_at.get(row.uuid, now) for row in rows} | dict.fromkeys(read, now)
    if tree is not view.tree or read_at != view.read_at:
        # Whoever came since the consumers were read moved the generation of what he has something of.
        consumers = {uuid: held for uuid, held in view.consumers.items() if uuid in read_at and uuid not in read}
        view = replace(view, tree=tree.freeze(), read_at=read_at, consumers=consumers)
    return _with_sharing(client, view, root, now, freshness.sharing)


def below(rows: Sequence[Row], root: ProviderUuid) -> list[Row]:
    """The rows at and below ``root``, parents first; none if it is not among them. An operator may have put the node below a provider of his own."""
    children: dict[ProviderUuid | None, list[Row]] = {}
    for row in rows:
        children.setdefault(row.parent_uuid, []).append(row)
    ordered = [replace(row, parent_uuid=None) for row in rows if row.uuid == root]
    for row in ordered:
        ordered.extend(sorted(children.get(row.uuid, ()), key=lambda child: child.name))
    return ordered


def _went_back(view: View, rows: Sequence[Row], root: ProviderUuid) -> bool:
    """Whether Placement lost something it had: a lower generation, or a provider that the agent did not delete."""
    if not view.tree.exists(root):
        return False
    shown = {row.uuid: row.generation for row in rows}
    known = [one for one in view.tree.providers() if one.uuid in view.read_at]
    lost = [one.name for one in known if shown.get(one.uuid, -1) < (one.generation or 0)]
    if lost:
        LOG.warning("placement state went back or was changed outside (%s); everything is read again", ", ".join(sorted(lost)[:5]))
    return bool(lost)


def _overdue(view: View, rows: Sequence[Row], now: float, interval: float) -> set[ProviderUuid]:
    """The providers whose last full reading is too old, few at a time.

    Each provider's own due time is spread over the second half of the interval; a reading "in the future" only says
    that the clock was set back, one that is far too old may say that it was set forward: hence the bound.
    """
    if not interval:
        return set()
    due = [row.uuid for row in rows if now - view.read_at.get(row.uuid, now) > interval * (0.5 + int(row.uuid[:4], 16) / 131072)]
    return set(due[: ceil(len(rows) / 20)])


def _restructured(known: ProviderTree, rows: Sequence[Row]) -> bool:
    """Whether names, parents or members differ, which no generation shows."""
    return len(known) != len(rows) or any((one := known.provider(row.uuid)).name != row.name or one.parent_uuid != row.parent_uuid for row in rows)


def _assembled(known: ProviderTree, rows: Sequence[Row], read: Mapping[ProviderUuid, Provider]) -> ProviderTree:
    tree = ProviderTree()
    for row in rows:
        contents = read.get(row.uuid) or known.provider(row.uuid)
        tree.insert(replace(contents, name=row.name, parent_uuid=row.parent_uuid))
    return tree


def _foreign_roots(tree: ProviderTree, root: ProviderUuid) -> list[Provider]:
    return [one for one in tree.roots if one.uuid != root]


def _add_root(tree: ProviderTree, one: Provider) -> None:
    if not tree.exists(one.uuid) and not tree.exists(one.name):
        tree.insert(replace(one, parent_uuid=None))


def _with_sharing(client: Client, view: View, root: ProviderUuid, now: float, interval: float) -> View:
    """``view`` with the roots that share with the tree, asked for when they are due or the tree's aggregates changed."""
    if not view.tree.exists(root):
        return view
    own = view.tree.subtree(root)
    aggregates = frozenset[str]().union(*(one.aggregates for one in own.providers()))
    present = {one.uuid: one for one in _foreign_roots(view.tree, root)}
    if not aggregates:
        return replace(view, tree=own.freeze(), sharing_read_at=None, sharing_aggregates=frozenset()) if present or view.sharing_aggregates else view
    asked, age = view.sharing_read_at, now - (view.sharing_read_at or 0)
    fresh = asked is not None and aggregates == view.sharing_aggregates and (not interval or 0 <= age < interval)
    if fresh:
        return view
    rows = [replace(row, parent_uuid=None) for row in client.sharing(aggregates) if not own.exists(row.uuid)]
    read = read_providers(client, [row for row in rows if row.uuid not in present or present[row.uuid].generation != row.generation])
    for row in rows:
        _add_root(own, replace(read.get(row.uuid) or present[row.uuid], name=row.name))
    return replace(view, tree=own.freeze(), sharing_read_at=now, sharing_aggregates=aggregates)
