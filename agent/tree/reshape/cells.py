"""How much of what a guest holds is of which host cell: what its own cells have there."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import os_resource_classes as orc

from agent.tree.cell_tree import OF_CELLS, cell_name, page_size
from agent.model.guest import PlacedCell

Count = Callable[[PlacedCell], int]


def counts(resource_class: str) -> Iterator[Count]:
    """The ways in which a cell's share of the class may have been counted.

    The host CPU of an emulator is in PCPU or it is not; where there is no PCPU, pinned CPUs are in VCPU.
    """
    if resource_class == orc.PCPU:
        yield lambda one: len(one.pins) + len(one.reserved)
        yield lambda one: len(one.pins)
    elif resource_class == orc.VCPU:
        yield lambda one: len(one.cell.shared)
        yield lambda one: len(one.cell.cpus)
        yield lambda one: len(one.cell.cpus) + len(one.reserved)
    elif resource_class == orc.MEMORY_MB:
        yield lambda one: one.cell.memory_mib
    elif (size := page_size(resource_class)) is not None:
        yield lambda one: one.cell.memory_mib if one.page_size_kib == size else 0


def counted_by_cells(resource_class: str) -> bool:
    """Whether the cells of a guest tell where its share of the class is."""
    return resource_class in OF_CELLS or page_size(resource_class) is not None


def shares(resource_class: str, amount: int, cells: Sequence[PlacedCell], root: str) -> Mapping[str, int] | None:
    """``amount`` by the names of the cells of the node called ``root``; None if the guest's cells come to something else."""
    for count in counts(resource_class):
        found = Counter[str]()
        for one in cells:
            found[cell_name(root, one.host_cell)] += count(one)
        if sum(found.values()) == amount:
            return {name: share for name, share in found.items() if share}
    return None
