"""The plan: a pure function of what Placement has and what it should have to an ordered list of operations."""

from collections.abc import Iterator
from dataclasses import dataclass

from agent.errors import ReshapeFailed
from agent.model.change_set import ChangeSet, diff
from agent.model.inventory import Inventories
from agent.model.mirror import Knowledge, View
from agent.model.names import ProviderUuid, is_custom
from agent.model.operation import (
    CreateProvider,
    DeleteProvider,
    EnsureResourceClass,
    EnsureTrait,
    Operation,
    ProviderRef,
    RenameProvider,
    ReparentProvider,
    SetAggregates,
    SetInventory,
    SetTraits,
)
from agent.model.provider_tree import Provider, ProviderTree
from agent.model.report import Drift
from agent.placement.client import REPARENT
from agent.placement.ownership import ADOPT, Target
from agent.placement.reshaping import Move, reshape

_NOTHING = Provider(ProviderUuid(""), "")


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be sent, in this order, and what the agent found and leaves alone."""

    operations: tuple[Operation, ...]
    target: Target
    drift: tuple[Drift, ...]


def make_plan(view: View, target: Target, knowledge: Knowledge, root: ProviderUuid, move: Move | None = None) -> Plan:
    """The operations that take Placement from ``view`` to ``target``.

    Providers come first, because a name or uuid that somebody else has ends it before anything is written; parents are
    created before and deleted after their children; a reshape needs the new providers to be there and the
    old ones not yet gone, and moves every generation, so that single writes come after it; inventories come before
    traits, so that no provider advertises what it cannot give.

    :raises ReshapeFailed: the allocations of ``move`` cannot be moved.
    """
    present = view.tree.subtree(root) if view.tree.exists(root) else ProviderTree()
    changes = diff(present, target.tree)
    drift = list(target.drift)
    reshaped: list[Operation] = []
    if move is not None:
        if not target.journal.adopted:
            drift.append(Drift("adoption-needed", "warning", "inventory and its allocations would move, but the tree is not adopted", ADOPT, root))
            return Plan((), target, tuple(drift))
        if target.invalid:
            raise ReshapeFailed(f"the node's wish cannot be had as a whole: {target.invalid[0]}", "a reshape is not done in parts")
        whole = reshape(present, target.tree, frozenset(target.journal.providers), move)
        reshaped = [whole] if whole.inventories else []
    operations = (
        *_creations(changes, target.tree),
        *_names(changes, present, target.tree, knowledge),
        *_renames(changes, present, target.tree),
        *_moves(changes, present, target.tree, knowledge, drift),
        *reshaped,
        *_deletions(changes, present),
        *_contents(changes, present, target.tree, with_inventories=not reshaped),
    )
    return Plan(operations, target, tuple(drift))


def _ref(provider: Provider) -> ProviderRef:
    return ProviderRef(provider.uuid, provider.name)


def _old(present: ProviderTree, uuid: ProviderUuid) -> Provider:
    return present.provider(uuid) if present.exists(uuid) else _NOTHING


def _names(changes: ChangeSet, present: ProviderTree, tree: ProviderTree, knowledge: Knowledge) -> Iterator[Operation]:
    """What the server has to know first. What a provider has already, it knows."""
    classes = {name for uuid in changes.inventory for name in tree.provider(uuid).inventory.keys() - _old(present, uuid).inventory.keys()}
    for name in sorted(classes - knowledge.classes):
        if is_custom(name):
            yield EnsureResourceClass(name=name, reason="this Placement has not confirmed it yet")
    traits = {name for uuid in changes.traits for name in tree.provider(uuid).traits - _old(present, uuid).traits}
    for name in sorted(traits - knowledge.traits):
        if is_custom(name):
            yield EnsureTrait(name=name, reason="this Placement does not know it yet")


def _creations(changes: ChangeSet, tree: ProviderTree) -> Iterator[Operation]:
    for uuid in changes.added:
        one = tree.provider(uuid)
        yield CreateProvider(provider=_ref(one), parent=one.parent_uuid, reason="the node has it, Placement does not")


def _renames(changes: ChangeSet, present: ProviderTree, tree: ProviderTree) -> Iterator[Operation]:
    for uuid in changes.renamed:
        yield RenameProvider(provider=_ref(tree.provider(uuid)), old_name=present.name_of(uuid), reason="renamed from outside")


def _moves(changes: ChangeSet, present: ProviderTree, tree: ProviderTree, knowledge: Knowledge, drift: list[Drift]) -> Iterator[Operation]:
    """Other parents, if the server can give them: before 1.37 a parent can be set only once."""
    for uuid in changes.reparented:
        old, new, ref = present.provider(uuid).parent_uuid, tree.provider(uuid).parent_uuid, _ref(tree.provider(uuid))
        if knowledge.offers(REPARENT):
            yield ReparentProvider(provider=ref, old_parent=old, parent=new, reason="it hangs under another provider on the node")
        else:
            what = f"{ref.name} hangs under {old}, on the node under {new}; this Placement cannot move it"
            drift.append(Drift("identity", "warning", what, f"upgrade Placement to {REPARENT}, or delete the provider", uuid))


def _deletions(changes: ChangeSet, present: ProviderTree) -> Iterator[Operation]:
    for uuid in changes.removed:
        one = present.provider(uuid)
        yield DeleteProvider(provider=_ref(one), inventory=one.inventory, reason="the node no longer has it")


def _contents(changes: ChangeSet, present: ProviderTree, tree: ProviderTree, *, with_inventories: bool) -> Iterator[Operation]:
    inventory, traits, aggregates = set(changes.inventory), set(changes.traits), set(changes.aggregates)
    for uuid in reversed(tree.get_provider_uuids()):
        old, new = _old(present, uuid), tree.provider(uuid)
        if uuid in inventory and with_inventories:
            yield SetInventory(provider=_ref(new), old=old.inventory, new=new.inventory, reason=_why(old.inventory, new.inventory))
        if uuid in aggregates:
            yield SetAggregates(
                provider=_ref(new), old=frozenset(old.aggregates), new=frozenset(new.aggregates), reason="other aggregates than in Placement"
            )  # fmt: skip
        if uuid in traits:
            yield SetTraits(provider=_ref(new), old=frozenset(old.traits), new=frozenset(new.traits), reason=_why_traits(old, new))


def _why(old: Inventories, new: Inventories) -> str:
    """In what the node and Placement differ; the report shows the amounts themselves."""
    if not old:
        return "Placement has none yet"
    gained, lost = new.keys() - old.keys(), old.keys() - new.keys()
    other = {name for name in new.keys() & old.keys() if old[name] != new[name]}
    parts = (("the node now has", gained), ("the node no longer has", lost), ("other amounts of", other))
    return "; ".join(f"{text} {', '.join(sorted(names))}" for text, names in parts if names)


def _why_traits(old: Provider, new: Provider) -> str:
    parts = (("missing in Placement", new.traits - old.traits), ("no longer true of the node", old.traits - new.traits))
    return "; ".join(text for text, names in parts if names)
