"""Tombstones: what the agent took back is remembered for a while, so that it is recognized as the
agent's and removed again when a restored database brings it back. Pure functions.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from agent.model.mirror import Journal, Ownership, Tombstone
from agent.model.names import ProviderUuid
from agent.model.provider import Provider
from agent.model.provider_tree import ProviderTree
from agent.placement.ownership import STATUS_DISABLED, is_derived

# In seconds. Older backups are hardly ever restored.
AGE = 90 * 86400.0
# The maximum number of tombstones; one takes about a hundred bytes.
NUMBER = 2000


def next_tombstones(
    before: Journal,
    after: Journal,
    wanted: Journal,
    now: float,
    unwritten: Collection[Tombstone] = (),
) -> Mapping[Tombstone, float]:
    """Return the tombstones after the agent's share changes from ``before`` to ``after``.

    What is ``wanted`` has no tombstone. Above the maximum number the oldest are dropped.

    :param unwritten: what was only intended: if it appears later, somebody else wrote it.
    """
    taken_back = dict.fromkeys(
        set(_marks(before.providers)).difference(_marks(after.providers), unwritten), now
    )
    standing = set(_marks(wanted.providers))
    kept = {
        mark: at
        for mark, at in {**before.tombstones, **taken_back}.items()
        if mark not in standing and now - at < AGE
    }
    # Among tombstones of one time those of providers are kept longest: the ownership of a provider
    # says more than that of its contents.
    newest = sorted(
        kept, key=lambda mark: (kept[mark], mark.kind == "provider", mark), reverse=True
    )[:NUMBER]
    return kept if len(newest) == len(kept) else {mark: kept[mark] for mark in newest}


def any_expired(tombstones: Mapping[Tombstone, float], now: float) -> bool:
    """Return whether one of ``tombstones`` is old enough to be forgotten."""
    return any(now - at >= AGE for at in tombstones.values())


def new_marks(before: Journal, after: Journal) -> frozenset[Tombstone]:
    """Return what is the agent's in ``after`` and was not in ``before``, as tombstones."""
    return frozenset(_marks(after.providers)).difference(_marks(before.providers))


def absent_from(marks: Iterable[Tombstone], tree: ProviderTree) -> frozenset[Tombstone]:
    """Return the tombstones of ``marks`` whose subject is not in ``tree``."""
    return frozenset(
        mark
        for mark in marks
        if not (tree.exists(mark.provider) and _has(tree.provider(mark.provider), mark))
    )


def _has(provider: Provider, mark: Tombstone) -> bool:
    there: Mapping[str, Collection[str]] = {
        "provider": {""},
        "class": provider.inventory.keys(),
        "trait": provider.traits,
        "aggregate": provider.aggregates,
    }
    return mark.name in there[mark.kind]


def reclaim(journal: Journal, tree: ProviderTree, root: ProviderUuid) -> Journal:
    """Return the journal extended by what is in ``tree`` although the agent took it back, and by
    children whose uuids only the agent derives.
    """
    providers = dict(journal.providers)
    for provider in tree.providers():
        if journal.owns(provider.uuid) or _is_ours(journal, provider, root):
            own, marks = journal.of(provider.uuid), journal.tombstones
            # Operators group hosts by aggregates of the root: there the same aggregate may well be
            # back for another reason.
            aggregates = [
                name
                for name in provider.aggregates
                if provider.uuid != root and Tombstone(provider.uuid, "aggregate", name) in marks
            ]
            again = Ownership(
                own.classes.union(
                    name
                    for name in provider.inventory
                    if Tombstone(provider.uuid, "class", name) in marks
                ),
                own.traits.union(
                    name
                    for name in provider.traits
                    if Tombstone(provider.uuid, "trait", name) in marks
                ),
                own.aggregates.union(aggregates),
                own.configured,
                own.role,
            )
            if again != own or not journal.owns(provider.uuid):
                providers[provider.uuid] = again
    return journal if providers == journal.providers else replace(journal, providers=providers)


def without_reappeared(tree: ProviderTree, journal: Journal) -> ProviderTree:
    """Return a copy of ``tree`` without what the agent took back.

    A driver that is shown the whole tree would keep it otherwise.
    """
    tree = tree.copy()
    for uuid in reversed(tree.get_provider_uuids()):
        if Tombstone(uuid, "provider") in journal.tombstones and not tree.children(uuid):
            tree.remove(uuid)
            continue
        provider = tree.provider(uuid)
        inventory = {
            name: record
            for name, record in provider.inventory.items()
            if Tombstone(uuid, "class", name) not in journal.tombstones
        }
        traits = frozenset(
            name
            for name in provider.traits
            if Tombstone(uuid, "trait", name) not in journal.tombstones
        )
        if len(inventory) != len(provider.inventory) or traits != provider.traits:
            tree.replace(replace(provider, inventory=inventory, traits=traits))
    return tree


def _is_ours(journal: Journal, provider: Provider, root: ProviderUuid) -> bool:
    return Tombstone(provider.uuid, "provider") in journal.tombstones or (
        provider.uuid != root and is_derived(provider, root)
    )


def _marks(providers: Mapping[ProviderUuid, Ownership]) -> Iterator[Tombstone]:
    """Yield everything that is the agent's, as tombstones."""
    for uuid, own in providers.items():
        yield Tombstone(uuid, "provider")
        for name in own.classes:
            yield Tombstone(uuid, "class", name)
        for name in own.traits:
            # Nova sets this trait too, whenever somebody disables the host.
            if name != STATUS_DISABLED:
                yield Tombstone(uuid, "trait", name)
        for name in own.aggregates:
            yield Tombstone(uuid, "aggregate", name)
