"""Which providers of a node count a class, before a move and after it."""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Self

import os_resource_classes as orc

from agent.desired.cell_tree import is_cell_name
from agent.desired.reshapes.cells import counted_by_cells
from agent.model.names import ProviderUuid
from agent.model.provider_tree import ProviderTree


def places(tree: ProviderTree, root: str, resource_class: str) -> frozenset[ProviderUuid]:
    """The providers of the node that have ``resource_class``, as far as the core makes them: others are their drivers' affair, and a storage's is its own."""
    if not tree.exists(root):
        return frozenset()
    name = tree.name_of(root)

    def may(uuid: ProviderUuid) -> bool:
        if uuid == root or not (resource_class == orc.DISK_GB or counted_by_cells(resource_class)):
            return True
        return resource_class != orc.DISK_GB and is_cell_name(tree.name_of(uuid), name)

    return frozenset(uuid for uuid in tree.get_provider_uuids_in_tree(root) if resource_class in tree.provider(uuid).inventory and may(uuid))


@dataclass(frozen=True, slots=True)
class Shift:
    """A class that is counted at ``before`` and will be at ``after``."""

    resource_class: str
    before: frozenset[ProviderUuid]
    after: frozenset[ProviderUuid]

    @classmethod
    def of(cls, present: ProviderTree, tree: ProviderTree, root: str, resource_class: str) -> Self:
        """What becomes of the class."""
        return cls(resource_class, places(present, root, resource_class), places(tree, root, resource_class))

    @property
    def left(self) -> frozenset[ProviderUuid]:
        """Where it is not counted any more."""
        return self.before - self.after

    def crosses(self, root: str) -> bool:
        """Whether it goes from the root to its children or back; one that only loses a child stays where it is."""
        return bool(self.before and self.after and self.left) and (root in self.before) != (root in self.after)


Shifts = Mapping[str, Shift]


def shifts(present: ProviderTree, tree: ProviderTree, root: str, classes: Set[str]) -> Shifts:
    """What becomes of each of ``classes``, in the order of their names."""
    return {name: Shift.of(present, tree, root, name) for name in sorted(classes)}
