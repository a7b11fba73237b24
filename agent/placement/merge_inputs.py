"""The inputs of a merge, and whose each provider and class of the desired tree is."""

from dataclasses import dataclass, replace
from typing import Self

import os_resource_classes as orc

from agent.model.inventory import Inventories
from agent.model.journal import Journal, Ownership
from agent.model.mirror import PlacementView
from agent.model.names import ProviderUuid
from agent.model.provider import Provider
from agent.model.provider_tree import ProviderTree

# The standard classes that are the node's own in its tree, written by nova or by the agent; other
# services write their own classes on providers of the tree.
NODES_OWN = frozenset(
    {orc.VCPU, orc.PCPU, orc.MEMORY_MB, orc.DISK_GB, orc.VGPU, orc.MEM_ENCRYPTION_CONTEXT}
)
STATUS_DISABLED = "COMPUTE_STATUS_DISABLED"


@dataclass(frozen=True, slots=True)
class MergeInputs:
    """The inputs of a merge.

    They tell of each provider of the desired tree whether this pass or an earlier pass of the agent
    wrote it, or somebody else.
    """

    present: ProviderTree
    """What Placement has of the node."""
    journal: Journal
    base: ProviderTree
    """The tree from which the driver made the desired tree."""
    desired: ProviderTree
    root: ProviderUuid
    take_over: bool
    """Whether every provider that the driver wrote is the agent's, as with an empty journal."""

    @classmethod
    def of(
        cls,
        view: PlacementView,
        journal: Journal,
        base: ProviderTree,
        desired: ProviderTree,
        root: ProviderUuid,
        *,
        take_over: bool = False,
    ) -> Self:
        """Build the inputs, with ``present`` taken from ``view``."""
        present = view.tree.subtree(root) if view.tree.exists(root) else ProviderTree()
        return cls(present, journal, base, desired, root, take_over or not journal.owns(root))

    def is_changed(self, uuid: ProviderUuid) -> bool:
        """Return whether this pass changed or created the provider."""
        if not self.desired.exists(uuid):
            return False
        return not self.base.exists(uuid) or self.desired.provider(uuid) != self.base.provider(uuid)

    def is_written(self, uuid: ProviderUuid) -> bool:
        """Return whether this pass wrote the provider, perhaps without changing it."""
        return self.is_changed(uuid) or uuid in self.desired.written_by_name

    def is_desired(self, uuid: ProviderUuid) -> bool:
        """Return whether the desired tree wants the provider, and does not only contain it as
        :func:`foreign_share` left it, as a parent for providers of others.
        """
        if not self.desired.exists(uuid) or uuid == self.root or not self.journal.owns(uuid):
            return self.desired.exists(uuid)
        emptied = (
            self.base.exists(uuid)
            and self.present.exists(uuid)
            and self.base.provider(uuid) != self.present.provider(uuid)
        )
        return not emptied or self.is_written(uuid)

    def is_own(self, uuid: ProviderUuid) -> bool:
        """Return whether the provider is the agent's to write."""
        if uuid == self.root or self.journal.owns(uuid) or not self.present.exists(uuid):
            return True
        return self.take_over and self.is_written(uuid)


def foreign_inventory(present: Provider, own: Ownership, adopted: bool) -> Inventories:
    """Return the classes of others: those that are not in the journal; in an adopted tree without
    the classes that only a node has.
    """
    return {
        name: record
        for name, record in present.inventory.items()
        if name not in own.classes and (name not in NODES_OWN or not adopted)
    }


def foreign_share(
    view: PlacementView, journal: Journal, root: ProviderUuid, name: str
) -> ProviderTree:
    """Return the tree that a shaping driver starts from: without the agent's contents, with those
    of others.

    Children of the agent that have foreign children stay, without contents, as their parents.
    """
    if not view.tree.exists(root):
        tree = ProviderTree()
        tree.new_root(name, root)
        return tree
    tree = view.tree.scoped(root)
    for uuid in reversed(tree.get_provider_uuids(root)):
        if not journal.owns(uuid) and uuid != root:
            continue
        if uuid != root and not tree.children(uuid):
            tree.remove(uuid)
            continue
        present, own = tree.provider(uuid), journal.of(uuid)
        tree.replace(
            replace(
                present,
                inventory=foreign_inventory(present, own, adopted=True),
                traits=present.traits - own.traits,
                aggregates=present.aggregates - own.aggregates,
            )
        )
    return tree
