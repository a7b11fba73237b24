"""Which providers of a node count a class, before a move and after it."""

from collections.abc import Mapping
from dataclasses import dataclass

import os_resource_classes as orc

from agent.tree.cell_tree import is_cell_name
from agent.tree.encryption_tree import CLASS as CONTEXT
from agent.tree.reshape.cells import counted_by_cells
from agent.model.names import ProviderUuid
from agent.model.provider_tree import ProviderTree

OF_CHILDREN = frozenset({orc.VGPU, CONTEXT})
"""What children count that are no cells."""
ALWAYS = frozenset({orc.VCPU, orc.PCPU, orc.MEMORY_MB, orc.DISK_GB, *OF_CHILDREN})


@dataclass(frozen=True, slots=True)
class Shift:
    """A class that is counted at ``before`` and will be at ``after``."""

    resource_class: str
    before: frozenset[ProviderUuid]
    after: frozenset[ProviderUuid]

    @property
    def left(self) -> frozenset[ProviderUuid]:
        """Where it is not counted any more."""
        return self.before - self.after

    def crosses(self, root: str) -> bool:
        """Whether it goes from the root to its children or back; one that only loses a child stays where it is."""
        return bool(self.before and self.after and self.left) and (root in self.before) != (root in self.after)


Shifts = Mapping[str, Shift]


def shifts(present: ProviderTree, tree: ProviderTree, root: str) -> Shifts:
    """What becomes of each class, in the order of their names: of all that may move always, and of pages where there are some."""
    before, after = _places(present, root), _places(tree, root)
    names = sorted(ALWAYS | before.keys() | after.keys())
    return {name: Shift(name, frozenset(before.get(name, ())), frozenset(after.get(name, ()))) for name in names}


def _places(tree: ProviderTree, root: str) -> dict[str, set[ProviderUuid]]:
    """The node's providers by the classes that they count, as far as the core makes them so: the rest is their drivers' affair, and a storage's its own."""
    found: dict[str, set[ProviderUuid]] = {}
    name = tree.name_of(root) if tree.exists(root) else ""
    # In one walk, because every pass looks.
    for uuid in tree.get_provider_uuids_in_tree(root) if name else ():
        one = tree.provider(uuid)
        is_place = uuid == root or is_cell_name(one.name, name)
        for resource_class in one.inventory:
            if resource_class in OF_CHILDREN or (is_place and counted_by_cells(resource_class)) or (uuid == root and resource_class == orc.DISK_GB):
                found.setdefault(resource_class, set()).add(uuid)
    return found
