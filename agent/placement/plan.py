"""The plan: a pure function from what Placement has and should have to an ordered list of
operations.
"""

from collections.abc import Collection, Container, Iterator, Set
from dataclasses import dataclass

from agent.errors import ReshapeFailed
from agent.model.finding import Drift
from agent.model.inventory import Inventories
from agent.model.mirror import REPARENT, PlacementView, ServerCapabilities
from agent.model.names import ProviderUuid, is_custom, name_first, printable
from agent.model.operation import (
    CreateProvider,
    DeleteProvider,
    EnsureName,
    EnsureResourceClass,
    EnsureTrait,
    Operation,
    ProviderRef,
    RenameProvider,
    ReparentProvider,
    Reshape,
    SetAggregates,
    SetInventory,
    SetTraits,
)
from agent.model.provider_tree import (
    PresentTree,
    Provider,
    ProviderTree,
    TargetTree,
    TreeDifference,
    compare_trees,
)
from agent.placement.merge import Target
from agent.placement.reshaping import AllocationMove, build_reshape

# The plan of a new node without children, aggregates aside.
_OF_NEW_NODE = [CreateProvider, SetInventory, SetTraits]
_NOTHING = Provider(ProviderUuid(""), "")


@dataclass(frozen=True, slots=True)
class Plan:
    """The operations to send, in order, and the drift that is only reported."""

    operations: tuple[Operation, ...]
    target: Target
    drift: tuple[Drift, ...]
    limited: bool = False
    """Whether a newer Placement could do more of what is needed."""
    withheld: bool = False
    """Whether operations are left out for now, so that the plan does not reach the target."""

    @property
    def is_of_new_node(self) -> bool:
        """Whether it creates a root without children: what such a plan sends last is guarded by the
        generation of its inventory.
        """
        kinds = [type(operation) for operation in self.operations]
        return [kind for kind in kinds if kind is not SetAggregates] == _OF_NEW_NODE


def make_plan(
    view: PlacementView,
    target: Target,
    capabilities: ServerCapabilities,
    root: ProviderUuid,
    move: AllocationMove | None = None,
    *,
    with_sharing: bool = False,
) -> Plan:
    """Return the operations that take Placement from ``view`` to ``target``.

    ``with_sharing``: the target includes the sharing providers of the view, which are other roots.

    Their order, in which :class:`agent.placement.flush.Flush` sends each kind too, because a flush
    may send a part of them first:

    - Names come first, the root's before those of its children: if another provider has the root's,
      nothing else is sent; what is renamed is the same provider, so that nothing is offered twice.
    - Providers are created next, parents before children: a name or uuid that somebody else holds
      stops the dependent operations before any of them is sent.
    - A reshape needs the new providers to exist and the old ones not to be deleted yet. It moves
      generations, so that writes of single providers follow it.
    - Children are deleted before their parents.
    - Inventories precede traits, so that no provider advertises what it cannot give.

    :raises ReshapeFailed: the allocations of ``move`` cannot be moved.
    """
    present = PresentTree(view.tree) if with_sharing else view.subtree(root)
    changes = compare_trees(present, target.tree)
    drift = [*target.drift, *_misplaced(view, root)]
    reshapes: list[Reshape] = []
    if move is not None:
        if target.invalid:
            raise ReshapeFailed(
                f"a part of the desired tree is invalid: {target.invalid[0].message}",
                "a reshape is not done in parts",
            )
        operation = build_reshape(present, target.tree, frozenset(target.journal.providers), move)
        reshapes = [operation] if operation.inventories else []
    way = _Way(present, target.tree, changes, capabilities, root)
    operations = (
        *way.renames(),
        *way.creations(),
        *way.names(),
        *way.reparents(),
        *reshapes,
        *way.deletions(),
        *way.contents({uuid for operation in reshapes for uuid in operation.inventories}),
    )
    return Plan(operations, target, (*drift, *way.misparented()), limited=way.limited)


def _misplaced(view: PlacementView, root: ProviderUuid) -> Iterator[Drift]:
    """Yield drift if somebody put the node's root below another provider: schedulers take the root
    of a whole tree for the host.
    """
    if view.above is not None and view.tree.exists(root):
        yield Drift(
            "identity",
            "warning",
            (
                f"{printable(view.tree.name_of(root))} hangs under provider {view.above}, so that "
                "nothing is scheduled to it"
            ),
            (
                f"make it a root again: PUT /resource_providers/{root} with its name and "
                f"parent_provider_uuid null, at microversion {REPARENT}"
            ),
            root,
        )


def depends(operation: Operation, failed: Collection[Operation], target: TargetTree) -> bool:
    """Return whether an operation cannot be sent because one of ``failed`` was not done.

    A provider needs its ancestors. A reshape is atomic and needs all its providers in their place;
    the providers that it empties are deleted only after it. A trait or class must exist before it
    is set. Without the name of its root nothing says that the tree is this node's.
    """
    nameless = any(
        isinstance(failure, RenameProvider)
        and target.exists(failure.provider.uuid)
        and target.provider(failure.provider.uuid).parent_uuid is None
        for failure in failed
    )
    if nameless:
        return True
    missing = {failure.provider.uuid for failure in failed if isinstance(failure, CreateProvider)}
    misplaced = missing | {
        failure.provider.uuid
        for failure in failed
        if isinstance(failure, RenameProvider | ReparentProvider)
    }
    names = {failure.name for failure in failed if isinstance(failure, EnsureName)}
    if isinstance(operation, Reshape):
        named = {
            uuid for allocation in operation.allocations.values() for uuid in allocation.resources
        } | operation.inventories.keys()
        return any(_hangs_from(target, uuid, misplaced) for uuid in named) or any(
            names & records.keys() for records in operation.inventories.values()
        )
    if isinstance(operation, DeleteProvider):
        return any(
            operation.provider.uuid in failure.inventories
            for failure in failed
            if isinstance(failure, Reshape)
        )
    if isinstance(operation, CreateProvider | ReparentProvider):
        return operation.parent is not None and _hangs_from(target, operation.parent, missing)
    if isinstance(operation, SetInventory | SetTraits):
        return bool(
            names & (operation.new.keys() if isinstance(operation, SetInventory) else operation.new)
        ) or _hangs_from(target, operation.provider.uuid, missing)
    return isinstance(operation, SetAggregates) and _hangs_from(
        target, operation.provider.uuid, missing
    )


def _hangs_from(
    tree: TargetTree, uuid: ProviderUuid | None, providers: Collection[ProviderUuid]
) -> bool:
    """Return whether the provider or one of its ancestors is among ``providers``."""
    while uuid is not None:
        if uuid in providers:
            return True
        uuid = tree.provider(uuid).parent_uuid if tree.exists(uuid) else None
    return False


def names_needed(operation: Operation) -> frozenset[str]:
    """Return the traits and resource classes that Placement must know for the operation."""
    if isinstance(operation, SetTraits | SetInventory):
        return frozenset(name for name in operation.new if name not in operation.old)
    if isinstance(operation, Reshape):
        return frozenset(name for records in operation.inventories.values() for name in records)
    return frozenset()


@dataclass(frozen=True, slots=True)
class _Way:
    """The way from one tree to another: the operations of each kind."""

    present: PresentTree
    tree: TargetTree
    changes: TreeDifference
    capabilities: ServerCapabilities
    root: ProviderUuid

    @property
    def limited(self) -> bool:
        """Whether the server cannot change a parent that is set (before 1.37)."""
        return bool(self.changes.reparented) and not self.capabilities.offers(REPARENT)

    def _ref(self, uuid: ProviderUuid) -> ProviderRef:
        tree = self.tree if self.tree.exists(uuid) else self.present
        return ProviderRef(uuid, tree.name_of(uuid))

    def renames(self) -> Iterator[Operation]:
        """Yield changes of names."""
        tree, present = self.tree, self.present
        for uuid in self.changes.renamed:
            name = tree.name_of(uuid)
            if present.exists(name) and not tree.exists(present.provider(name).uuid):
                # The name is free in the next pass: its holder is deleted in this one.
                continue
            yield RenameProvider(
                provider=self._ref(uuid),
                old_name=present.name_of(uuid),
                reason="the node has another name"
                if uuid == self.root or present.name_of(self.root) != tree.name_of(self.root)
                else "renamed from outside",
            )

    def creations(self) -> Iterator[Operation]:
        """Yield creations of providers, parents first."""
        for uuid in self.changes.added:
            yield CreateProvider(
                provider=self._ref(uuid),
                parent=self.tree.provider(uuid).parent_uuid,
                reason="the node has it, Placement does not",
            )

    def names(self) -> Iterator[Operation]:
        """Yield operations that create missing names; names that a provider has already are
        known.
        """
        capabilities = self.capabilities
        traits, classes = added_names(self.present, self.tree)
        for name in sorted(classes - capabilities.classes):
            if is_custom(name):
                yield EnsureResourceClass(
                    name=name, reason="this Placement has not confirmed it yet"
                )
        for name in sorted(traits - capabilities.traits):
            if is_custom(name):
                yield EnsureTrait(name=name, reason="this Placement does not know it yet")

    def reparents(self) -> Iterator[Operation]:
        """Yield changes of parents, if the server can make them."""
        for uuid in () if self.limited else self.changes.reparented:
            yield ReparentProvider(
                provider=self._ref(uuid),
                old_parent=self.present.provider(uuid).parent_uuid,
                parent=self.tree.provider(uuid).parent_uuid,
                reason="it belongs under another provider of the node now",
            )

    def misparented(self) -> Iterator[Drift]:
        """Yield drift for the changes of parents that the server cannot make."""
        for uuid in self.changes.reparented if self.limited else ():
            old, new = self.present.provider(uuid).parent_uuid, self.tree.provider(uuid).parent_uuid
            yield Drift(
                "identity",
                "warning",
                f"{self.tree.name_of(uuid)} hangs under {old}, on the node under {new}; this "
                "Placement cannot move it",
                f"upgrade Placement to {REPARENT}, which is asked for once an hour, or delete the "
                "provider",
                uuid,
            )

    def deletions(self) -> Iterator[Operation]:
        """Yield deletions of providers, children first."""
        for uuid in self.changes.removed:
            yield DeleteProvider(
                provider=self._ref(uuid),
                inventory=self.present.provider(uuid).inventory,
                reason="it is no part of the node's tree any more",
            )

    def contents(self, reshaped: Container[ProviderUuid]) -> Iterator[Operation]:
        """Yield writes of contents; the providers of ``reshaped`` have their inventories
        already.
        """
        inventory = set(self.changes.inventory)
        traits, aggregates = set(self.changes.traits), set(self.changes.aggregates)
        for uuid in reversed(self.tree.get_provider_uuids()):
            old = self.present.provider(uuid) if self.present.exists(uuid) else _NOTHING
            new, provider = self.tree.provider(uuid), self._ref(uuid)
            if uuid in inventory and uuid not in reshaped:
                yield SetInventory(
                    provider=provider,
                    old=old.inventory,
                    new=new.inventory,
                    reason=_why(old.inventory, new.inventory),
                )
            if uuid in aggregates:
                yield SetAggregates(
                    provider=provider,
                    old=frozenset(old.aggregates),
                    new=frozenset(new.aggregates),
                    reason="other aggregates than in Placement",
                )
            if uuid in traits:
                yield SetTraits(
                    provider=provider,
                    old=frozenset(old.traits),
                    new=frozenset(new.traits),
                    reason=_why_traits(old.traits, new.traits),
                )


def added_names(
    present: ProviderTree, desired: ProviderTree
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the traits and the resource classes that providers of ``desired`` have and the same
    providers in ``present`` have not.
    """
    traits, classes = set[str](), set[str]()
    for provider in desired.providers():
        old = present.provider(provider.uuid) if present.exists(provider.uuid) else None
        traits |= provider.traits - old.traits if old else provider.traits
        classes |= (
            provider.inventory.keys() - old.inventory.keys() if old else provider.inventory.keys()
        )
    return frozenset(traits), frozenset(classes)


def _why(old: Inventories, new: Inventories) -> str:
    """Return how the node and Placement differ; the report shows the amounts themselves."""
    if not old:
        return "Placement has none yet"
    gained, lost = new.keys() - old.keys(), old.keys() - new.keys()
    other = {name for name in new.keys() & old.keys() if old[name] != new[name]}
    parts = (
        ("the node now has", gained),
        ("the node no longer has", lost),
        ("other amounts of", other),
    )
    return "; ".join(f"{text} {name_first(sorted(names))}" for text, names in parts if names)


def _why_traits(old: Set[str], new: Set[str]) -> str:
    parts = (("missing in Placement", new - old), ("no longer true of the node", old - new))
    return "; ".join(text for text, names in parts if names)
