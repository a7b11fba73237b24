"""The mirror: keeps a view of one node's tree up to date with one request a pass, and reads in full
only the providers whose generation moved. What others changed of the agent's meanwhile (deleted
providers, an older state of the whole tree, lost traits) is recognized and logged.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from agent.errors import GenerationConflict, InvalidTree, PlacementRefused
from agent.model.mirror import Journal, Ownership, PlacementView
from agent.model.names import MOST_NAMED, ProviderUuid, name_first, printable
from agent.model.provider_tree import PresentTree, Provider, ProviderExists, ProviderTree
from agent.placement.answers import Row
from agent.placement.client import PlacementClient

LOG = logging.getLogger(__name__)


def lacks_own(read: Provider, own: Ownership | None, known: Provider) -> bool:
    """Return whether ``read`` lacks something that the agent wrote and that ``known`` has."""
    if own is None:
        return False
    classes = any(
        name in known.inventory and read.inventory.get(name) != known.inventory[name]
        for name in own.classes
    )
    return (
        classes
        or bool(own.traits & known.traits - read.traits)
        or bool(own.aggregates & known.aggregates - read.aggregates)
    )


def log_changes(missing: Sequence[str], went_back: Sequence[str]) -> None:
    """Log the names of providers that somebody else deleted or that are in an older state."""
    if went_back:
        LOG.warning(
            "placement state went back or was changed outside (%s); everything is read again",
            _first_names([*missing, *went_back]),
        )
    elif missing:
        LOG.warning(
            (
                "somebody deleted providers of the agent's (%s); those that the node has are made "
                "again"
            ),
            _first_names(missing),
        )


def log_losses(
    before: PresentTree,
    after: PresentTree,
    root: ProviderUuid,
    journal: Journal,
    suspects: Collection[ProviderUuid],
) -> None:
    """Log what others removed: traits of the agent on its providers, and with a deleted root what
    somebody else had put on it.

    :param suspects: providers with a write of unknown outcome: their traits may never have been
        set.
    """
    losses = {
        uuid: own.traits & before.provider(uuid).traits - after.provider(uuid).traits
        for uuid, own in journal.providers.items()
        if uuid not in suspects and before.exists(uuid) and after.exists(uuid)
    }
    lines = [
        f"{printable(after.name_of(uuid))} lost traits that the agent had set: "
        + name_first(sorted(lost))
        for uuid, lost in losses.items()
        if lost
    ]
    for line in sorted(lines)[:MOST_NAMED]:
        LOG.warning("provider %s", line)
    if len(lines) > MOST_NAMED:
        LOG.warning("%d more providers lost traits that the agent had set", len(lines) - MOST_NAMED)
    if before.exists(root) and not after.exists(root):
        # Only others can put on the new root what they had put on this one.
        gone, own = before.provider(root), journal.of(root)
        foreign = (
            ("traits", gone.traits - own.traits),
            ("aggregates", gone.aggregates - own.aggregates),
        )
        named = [
            f"{kind} {printable(name_first(sorted(names)))}" for kind, names in foreign if names
        ]
        if named:
            LOG.warning(
                (
                    "the root %s was deleted, and with it what somebody else had put on it: %s; it "
                    "has to be put on the new one"
                ),
                printable(gone.name),
                "; ".join(named),
            )


def _first_names(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are: a host has thousands of providers."""
    return name_first(sorted(map(printable, names)))


ATTEMPTS = 3


def read_provider(client: PlacementClient, row: Row) -> Provider:
    """Read inventory, aggregates and traits of a provider, all three at one generation.

    Answers of different generations may hide a change between them: the newest generation stored
    beside an older inventory would let a later guarded write overwrite that change.

    :raises GenerationConflict: the provider changed during every attempt, or was deleted.
    """
    for _ in range(ATTEMPTS):
        try:
            at_inventory, inventory = client.inventories(row.uuid)
            at_aggregates, aggregates = client.aggregates(row.uuid)
            at_traits, traits = client.traits(row.uuid)
        except PlacementRefused as error:
            if error.status != 404:
                raise
            raise GenerationConflict(
                f"provider {printable(row.name)} went away while it was read"
            ) from error
        if at_inventory == at_aggregates == at_traits:
            return Provider(
                row.uuid, row.name, at_traits, row.parent_uuid, inventory, traits, aggregates
            )
        LOG.debug("provider %s changed while it was read", printable(row.name))
    raise GenerationConflict(
        f"provider {printable(row.name)} changed every time it was read",
        "it is read again in the next pass",
    )


def read_providers(client: PlacementClient, rows: Iterable[Row]) -> Mapping[ProviderUuid, Provider]:
    """Read many providers, concurrently."""
    return {
        provider.uuid: provider
        for provider in client.exchange.each(lambda row: read_provider(client, row), rows)
    }


# The default for ``own``: nothing is known to be the agent's.
NOBODYS: Mapping[ProviderUuid, Ownership] = {}


@dataclass(frozen=True, slots=True)
class Freshness:
    """How old the parts of a view may become before they are read again, in seconds."""

    sharing: float = 300
    """Age of the list of sharing providers; 0: read only once."""
    reread: float = 0
    """Age of a provider's contents whose generation did not move; 0: unlimited."""
    consumers: float = 600
    """Age of the known holders of a provider; 0: unlimited."""
    everything: bool = False
    """Whether nothing of a saved view is trusted."""


def refresh_view(
    client: PlacementClient,
    view: PlacementView,
    root: ProviderUuid,
    now: float,
    freshness: Freshness,
    suspects: Collection[str] = (),
    rows: Sequence[Row] | None = None,
    own: Mapping[ProviderUuid, Ownership] = NOBODYS,
) -> PlacementView:
    """Return ``view`` as Placement is now; the same object if nothing moved.

    :param suspects: providers that are read in full whatever their generation, because the outcome
        of a write is unknown.
    :param rows: the structure of the tree, if one list for many nodes already has it.
    :param own: the journal's record of what the agent wrote.
    :raises GenerationConflict: a provider changed during every attempt to read it.
    :raises InvalidTree: the uuid of one provider is the name of another.
    """
    listed = client.tree(root) if rows is None else rows
    if not _is_due(view, listed, root, now, freshness, suspects) and _shows(view, listed, root):
        return view
    rows, above = (
        below(listed, root),
        next((row.parent_uuid for row in listed if row.uuid == root), None),
    )
    shown = {row.uuid: row.generation for row in rows}
    before = [provider for provider in view.tree.providers() if provider.uuid in view.read_at]
    # Providers of others may come and go.
    missing = [one.name for one in before if one.uuid in own and one.uuid not in shown]
    went_back = [
        provider.name
        for provider in before
        if shown.get(provider.uuid, provider.generation or 0) < (provider.generation or 0)
    ]
    if freshness.everything or not rows or went_back:
        view = PlacementView(unknown_since=view.unknown_since)
    if above != view.above:
        view = replace(view, above=above)
    known = view.subtree(root)
    suspects = set(suspects) | _overdue(view, rows, now, freshness.reread)
    read = read_providers(client, _moved(known, rows, suspects))
    if missing and not went_back:
        # After a restored database, writes of others may have raised its generations to those that
        # the view has.
        went_back = [
            provider.name
            for provider in read.values()
            if known.exists(provider.uuid)
            and lacks_own(provider, own.get(provider.uuid), known.provider(provider.uuid))
        ]
        if went_back:
            read = {**read, **read_providers(client, [row for row in rows if row.uuid not in read])}
    log_changes(missing, went_back)
    return _with_sharing(
        client, _updated(view, root, rows, known, read, now), root, now, freshness.sharing
    )


def allocations_written(before: ProviderTree, now: ProviderTree) -> Mapping[ProviderUuid, int]:
    """Return the providers whose generation moved by another number than the writes of their
    contents explain, with the difference: each write of contents or of an allocation moves it by
    one.
    """
    found = {}
    for old in before.providers():
        new = now.provider(old.uuid) if now.exists(old.uuid) else old
        if old.generation is None or new.generation is None or old.generation == new.generation:
            continue
        contents = sum(
            (
                old.inventory != new.inventory,
                old.traits != new.traits,
                old.aggregates != new.aggregates,
            )
        )
        if written := abs(new.generation - old.generation - contents):
            found[old.uuid] = written
    return found


def _is_due(
    view: PlacementView,
    rows: Sequence[Row],
    root: ProviderUuid,
    now: float,
    freshness: Freshness,
    suspects: Collection[str],
) -> bool:
    """Return whether something of the view may have to be read again although nothing moved."""
    shares = bool(view.sharing_aggregates) or any(
        provider.uuid != root for provider in view.tree.roots
    )
    asked, age = view.sharing_read_at, now - (view.sharing_read_at or 0)
    fresh = asked is not None and (not freshness.sharing or 0 <= age < freshness.sharing)
    overdue = _overdue(view, rows, now, freshness.reread)
    return bool(freshness.everything or suspects or overdue or (shares and not fresh))


def _shows(view: PlacementView, rows: Sequence[Row], root: ProviderUuid) -> bool:
    """Return whether ``rows`` are exactly the node's tree as the view has it, each provider with
    the same generation, and the sharing roots are those of the tree's aggregates.

    False for a root that is below another provider, whose tree has other providers too.
    """
    tree, read_at = view.tree, view.read_at
    if view.above is not None or len(rows) != len(read_at) or not tree.exists(root):
        return False
    aggregates: set[str] = set()
    for row in rows:
        if row.uuid not in read_at or not tree.exists(row.uuid):
            return False
        known = tree.provider(row.uuid)
        aggregates |= known.aggregates
        if (known.generation, known.name, known.parent_uuid) != (
            row.generation,
            row.name,
            row.parent_uuid,
        ):
            return False
    return aggregates == view.sharing_aggregates


def _moved(known: ProviderTree, rows: Sequence[Row], suspects: Collection[str]) -> list[Row]:
    """Return the providers whose contents have to be read: those that are new, whose generation
    moved, or that are among ``suspects``.
    """
    return [
        row
        for row in rows
        if row.uuid in suspects
        or not known.exists(row.uuid)
        or known.provider(row.uuid).generation != row.generation
    ]


def _updated(
    view: PlacementView,
    root: ProviderUuid,
    rows: Sequence[Row],
    known: ProviderTree,
    read: Mapping[ProviderUuid, Provider],
    now: float,
) -> PlacementView:
    """Return ``view`` with the providers ``read`` and the structure of ``rows``; the same object if
    nothing differs.
    """
    # No generation shows that names, parents or members differ.
    if (
        not read
        and len(known) == len(rows)
        and all(
            (there := known.provider(row.uuid)).name == row.name
            and there.parent_uuid == row.parent_uuid
            for row in rows
        )
    ):
        tree = view.tree
    else:
        tree = _assemble(known, rows, read)
        for provider in _foreign_roots(view.tree, root):
            _add_root(tree, provider)
    read_at = {row.uuid: view.read_at.get(row.uuid, now) for row in rows} | dict.fromkeys(read, now)
    if tree is view.tree and read_at == view.read_at:
        return view
    # A consumer that was added since the consumers were read moved the generation of each provider
    # it allocates from.
    consumers = {
        uuid: held for uuid, held in view.consumers.items() if uuid in read_at and uuid not in read
    }
    asked = {uuid: at for uuid, at in view.consumers_at.items() if uuid in consumers}
    return replace(
        view, tree=tree.freeze(), read_at=read_at, consumers=consumers, consumers_at=asked
    )


def below(rows: Sequence[Row], root: ProviderUuid) -> list[Row]:
    """Return the rows at and below ``root``, parents first; none if ``root`` is not among them.

    An operator may have put the node's root below another provider.
    """
    children: dict[ProviderUuid | None, list[Row]] = {}
    for row in rows:
        children.setdefault(row.parent_uuid, []).append(row)
    ordered = [Row(row.uuid, row.name, row.generation) for row in rows if row.uuid == root]
    for row in ordered:
        ordered.extend(sorted(children.get(row.uuid, ()), key=lambda child: child.name))
    return ordered


def _overdue(
    view: PlacementView, rows: Sequence[Row], now: float, interval: float
) -> set[ProviderUuid]:
    """Return the providers whose last full read is too old, at most a twentieth of the tree.

    The due time of each provider is spread over the second half of the interval. The number is
    bounded because a very old read may only mean that the clock was set forward; a read "in the
    future" means that it was set back.
    """
    if not interval:
        return set()
    due = [
        row.uuid
        for row in rows
        if now - view.read_at.get(row.uuid, now) > interval * (0.5 + int(row.uuid[:4], 16) / 131072)
    ]
    return set(due[: ceil(len(rows) / 20)])


def _assemble(
    known: ProviderTree, rows: Sequence[Row], read: Mapping[ProviderUuid, Provider]
) -> PresentTree:
    tree = PresentTree(ProviderTree())
    for row in rows:
        contents = read.get(row.uuid) or known.provider(row.uuid)
        try:
            tree.insert(replace(contents, name=row.name, parent_uuid=row.parent_uuid))
        except ProviderExists as error:
            # Placement accepts a uuid as a name, but then a uuid or name in a call is ambiguous.
            wrong = tree.provider(row.uuid) if tree.exists(row.uuid) else row
            raise InvalidTree(
                (
                    f"provider {wrong.uuid} is called {printable(wrong.name)!r} in Placement: in "
                    "its tree the uuid of one provider is the name of another"
                ),
                "rename it",
            ) from error
    return tree


def _foreign_roots(tree: ProviderTree, root: ProviderUuid) -> list[Provider]:
    return [provider for provider in tree.roots if provider.uuid != root]


def _add_root(tree: ProviderTree, provider: Provider) -> None:
    if not tree.exists(provider.uuid) and not tree.exists(provider.name):
        tree.insert(replace(provider, parent_uuid=None))


def _with_sharing(
    client: PlacementClient, view: PlacementView, root: ProviderUuid, now: float, interval: float
) -> PlacementView:
    """Return ``view`` with the roots that share with the tree.

    They are read again when they are due or when the aggregates of the tree changed.
    """
    if not view.tree.exists(root):
        return view
    own = view.tree.subtree(root)
    aggregates = frozenset[str]().union(*(provider.aggregates for provider in own.providers()))
    present = {provider.uuid: provider for provider in _foreign_roots(view.tree, root)}
    if not aggregates:
        return (
            replace(view, tree=own.freeze(), sharing_read_at=None, sharing_aggregates=frozenset())
            if present or view.sharing_aggregates
            else view
        )
    asked, age = view.sharing_read_at, now - (view.sharing_read_at or 0)
    fresh = (
        asked is not None
        and aggregates == view.sharing_aggregates
        and (not interval or 0 <= age < interval)
    )
    if fresh:
        return view
    rows = [
        Row(row.uuid, row.name, row.generation)
        for row in client.sharing(aggregates)
        if not own.exists(row.uuid)
    ]
    read = read_providers(
        client,
        [
            row
            for row in rows
            if row.uuid not in present or present[row.uuid].generation != row.generation
        ],
    )
    for row in rows:
        _add_root(own, replace(read.get(row.uuid) or present[row.uuid], name=row.name))
    return replace(view, tree=own.freeze(), sharing_read_at=now, sharing_aggregates=aggregates)
