"""What the agent took back is remembered for a while: when a restored database brings it back, it
is the agent's and goes again. Pure.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from agent.model.journal import Journal, Ownership, Tombstone
from agent.model.names import ProviderUuid, child_uuid
from agent.model.provider_tree import Provider, ProviderTree
from agent.placement.merge import STATUS_DISABLED

# Backups that are older than this, in seconds, are hardly restored any more.
AGE = 90 * 86400.0
# How many are kept; about a hundred bytes each.
NUMBER = 2000


def buried(
    before: Journal,
    after: Journal,
    wanted: Journal,
    now: float,
    unwritten: Collection[Tombstone] = (),
) -> Mapping[Tombstone, float]:
    """The tombstones once what is ours goes from ``before`` to ``after``; what is ``wanted`` has
    none. Too many: the oldest go.

    ``unwritten``: what was only intended, so that whoever has it later made it himself.
    """
    taken_back = dict.fromkeys(
        set(_marks(before.providers)).difference(_marks(after.providers), unwritten), now
    )
    standing = set(_marks(wanted.providers))
    kept = {
        one: at
        for one, at in {**before.tombstones, **taken_back}.items()
        if one not in standing and now - at < AGE
    }
    # Of one time the providers last: that one is ours says more than what of it is.
    newest = sorted(kept, key=lambda one: (kept[one], one.kind == "provider", one), reverse=True)[
        :NUMBER
    ]
    return kept if len(newest) == len(kept) else {one: kept[one] for one in newest}


def intended(before: Journal, after: Journal) -> frozenset[Tombstone]:
    """What is ours in ``after`` and was not in ``before``, as tombstones would name it."""
    return frozenset(_marks(after.providers)).difference(_marks(before.providers))


def absent(marks: Iterable[Tombstone], tree: ProviderTree) -> frozenset[Tombstone]:
    """Those of ``marks`` that ``tree`` does not have."""
    return frozenset(
        one
        for one in marks
        if not (tree.exists(one.provider) and _has(tree.provider(one.provider), one))
    )


def _has(provider: Provider, one: Tombstone) -> bool:
    there: Mapping[str, Collection[str]] = {
        "provider": {""},
        "class": provider.inventory.keys(),
        "trait": provider.traits,
        "aggregate": provider.aggregates,
    }
    return one.name in there[one.kind]


def reclaimed(journal: Journal, tree: ProviderTree, root: ProviderUuid) -> Journal:
    """The journal with what is there of ``tree`` although the agent took it back, and with children
    that have uuids only the agent gives.
    """
    providers = dict(journal.providers)
    for one in tree.providers():
        if journal.owns(one.uuid) or _is_ours(journal, one.uuid, one.name, root):
            own, marks = journal.of(one.uuid), journal.tombstones
            # The aggregates of the root are the operator's way to group hosts: there, the same one
            # may well be back for another reason.
            aggregates = [
                name
                for name in one.aggregates
                if one.uuid != root and Tombstone(one.uuid, "aggregate", name) in marks
            ]
            again = Ownership(
                own.classes.union(
                    name for name in one.inventory if Tombstone(one.uuid, "class", name) in marks
                ),
                own.traits.union(
                    name for name in one.traits if Tombstone(one.uuid, "trait", name) in marks
                ),
                own.aggregates.union(aggregates),
                own.configured,
                own.name,
            )
            if again != own or not journal.owns(one.uuid):
                providers[one.uuid] = again
    return journal if providers == journal.providers else replace(journal, providers=providers)


def without_reappeared(tree: ProviderTree, journal: Journal) -> ProviderTree:
    """A copy of ``tree`` without what the agent took back: what a driver that is shown everything
    would else keep.
    """
    tree = tree.copy()
    for uuid in reversed(tree.get_provider_uuids()):
        if Tombstone(uuid, "provider") in journal.tombstones and not tree.children(uuid):
            tree.remove(uuid)
            continue
        one = tree.provider(uuid)
        inventory = {
            name: record
            for name, record in one.inventory.items()
            if Tombstone(uuid, "class", name) not in journal.tombstones
        }
        traits = frozenset(
            name for name in one.traits if Tombstone(uuid, "trait", name) not in journal.tombstones
        )
        if len(inventory) != len(one.inventory) or traits != one.traits:
            tree.replace(replace(one, inventory=inventory, traits=traits))
    return tree


def _is_ours(journal: Journal, uuid: ProviderUuid, name: str, root: ProviderUuid) -> bool:
    return Tombstone(uuid, "provider") in journal.tombstones or (
        uuid != root and uuid == child_uuid(root, name)
    )


def _marks(providers: Mapping[ProviderUuid, Ownership]) -> Iterator[Tombstone]:
    """Everything that is the agent's, as tombstones would name it."""
    for uuid, own in providers.items():
        yield Tombstone(uuid, "provider")
        for name in own.classes:
            yield Tombstone(uuid, "class", name)
        for name in own.traits:
            # Nova sets it too, whenever somebody disables the host.
            if name != STATUS_DISABLED:
                yield Tombstone(uuid, "trait", name)
        for name in own.aggregates:
            yield Tombstone(uuid, "aggregate", name)
