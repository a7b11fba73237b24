"""Which providers of a node count a class before and after a change, and how a guest's amount
spreads over its cells.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import os_resource_classes as orc

from agent.model.guest import PlacedCell
from agent.model.names import ProviderUuid
from agent.model.provider_tree import ProviderTree
from agent.tree.cell_tree import OF_CELLS, cell_name, is_cell_name, page_size
from agent.tree.node_trees import NodeTrees

CellShare = Callable[[PlacedCell], int]
"""Computes how much of a class a guest cell holds."""


def cell_shares(resource_class: str) -> Iterator[CellShare]:
    """Yield the ways in which a guest cell's share of the class may have been counted.

    The host CPU of an emulator is in PCPU or not; where there is no PCPU, pinned CPUs are in VCPU.
    """
    if resource_class == orc.PCPU:
        yield lambda cell: len(cell.pins) + len(cell.reserved)
        yield lambda cell: len(cell.pins)
    elif resource_class == orc.VCPU:
        yield lambda cell: len(cell.cell.shared)
        yield lambda cell: len(cell.cell.cpus)
        yield lambda cell: len(cell.cell.cpus) + len(cell.reserved)
    elif resource_class == orc.MEMORY_MB:
        yield lambda cell: cell.cell.memory_mib
    elif (size := page_size(resource_class)) is not None:
        yield lambda cell: cell.cell.memory_mib if cell.page_size_kib == size else 0


def counted_by_cells(resource_class: str) -> bool:
    """Whether the cells of a guest show where its share of the class is."""
    return resource_class in OF_CELLS or page_size(resource_class) is not None


def shares_by_cell(
    resource_class: str, amount: int, cells: Sequence[PlacedCell], root: str
) -> Mapping[str, int] | None:
    """Return ``amount`` by the names of the cells of the node called ``root``; None if the guest's
    cells add up to another amount.
    """
    for share_of in cell_shares(resource_class):
        shares = Counter[str]()
        for cell in cells:
            shares[cell_name(root, cell.host_cell)] += share_of(cell)
        if sum(shares.values()) == amount:
            return {name: share for name, share in shares.items() if share}
    return None


OF_CHILDREN = frozenset({orc.VGPU, orc.MEM_ENCRYPTION_CONTEXT})
"""Classes that are counted by children other than cells."""
ALWAYS = frozenset({orc.VCPU, orc.PCPU, orc.MEMORY_MB, orc.DISK_GB, *OF_CHILDREN})
"""Classes that may always move; page classes are added where there are some."""


@dataclass(frozen=True, slots=True)
class ClassMove:
    """A resource class, and the providers that count it before and after a change of the tree."""

    resource_class: str
    before: frozenset[ProviderUuid]
    after: frozenset[ProviderUuid]

    @property
    def left(self) -> frozenset[ProviderUuid]:
        """The providers that do not count it any more."""
        return self.before - self.after

    def crosses(self, root: ProviderUuid) -> bool:
        """Whether the class goes from the root to its children or back; a class that only loses a
        child does not.
        """
        return bool(self.before and self.after and self.left) and (root in self.before) != (
            root in self.after
        )


ClassMoves = Mapping[str, ClassMove]
"""By resource class."""


def class_moves(trees: NodeTrees) -> ClassMoves:
    """Return the move of each class from the tree in Placement to the desired one, ordered by
    class: of all that may always move, and of pages where there are some.
    """
    before = _counting_providers(trees.present, trees.root)
    after = _counting_providers(trees.desired, trees.root)
    names = sorted(ALWAYS | before.keys() | after.keys())
    return {
        name: ClassMove(name, frozenset(before.get(name, ())), frozenset(after.get(name, ())))
        for name in names
    }


def _counting_providers(tree: ProviderTree, root: ProviderUuid) -> dict[str, set[ProviderUuid]]:
    """Return the node's providers by the classes that they count, as far as the core counts them:
    other inventories are moved by their drivers.
    """
    found: dict[str, set[ProviderUuid]] = {}
    name = tree.name_of(root) if tree.exists(root) else ""
    # In one walk, because every pass needs it.
    for uuid in tree.get_provider_uuids_in_tree(root) if name else ():
        provider = tree.provider(uuid)
        is_root_or_cell = uuid == root or is_cell_name(provider.name, name)
        for resource_class in provider.inventory:
            if (
                resource_class in OF_CHILDREN
                or (is_root_or_cell and counted_by_cells(resource_class))
                or (uuid == root and resource_class == orc.DISK_GB)
            ):
                found.setdefault(resource_class, set()).add(uuid)
    return found
