"""``fake.numa``: two sockets with two cells each, 64 CPUs with two threads a core, pages of 2 MiB
and 1 GiB, two network cards.
"""

from agent.model.topology import Cell, PagePool, Topology
from drivers.fake.catalogue import FakeDriver
from drivers.fake.machine import Machine, network_card, processor

CELLS, CORES_PER_CELL, MEMORY_MIB, DISK_GIB = 4, 8, 65536, 4096
CORES = CELLS * CORES_PER_CELL
SMALL_KIB, LARGE_KIB, HUGE_KIB = 4, 2048, 1048576
LARGE_PAGES, HUGE_PAGES = 4096, 8
LOCAL, SAME_SOCKET, OTHER_SOCKET = 10, 12, 32


def _socket(cell: int) -> int:
    return cell // 2


def _distance(cell: int, other: int) -> int:
    if cell == other:
        return LOCAL
    return SAME_SOCKET if _socket(cell) == _socket(other) else OTHER_SOCKET


def _cell(number: int) -> Cell:
    # As Linux numbers them: first one thread of every core of the host, then the second threads.
    cores = range(number * CORES_PER_CELL, (number + 1) * CORES_PER_CELL)
    siblings = tuple(frozenset({core, core + CORES}) for core in cores)
    small_pages = (MEMORY_MIB * 1024 - LARGE_PAGES * LARGE_KIB - HUGE_PAGES * HUGE_KIB) // SMALL_KIB
    return Cell(
        id=number,
        cpus=frozenset().union(*siblings),
        memory_mib=MEMORY_MIB,
        pages=(
            PagePool(SMALL_KIB, small_pages),
            PagePool(LARGE_KIB, LARGE_PAGES, LARGE_PAGES),
            PagePool(HUGE_KIB, HUGE_PAGES, HUGE_PAGES),
        ),
        distances={other: _distance(number, other) for other in range(CELLS)},
        siblings=siblings,
        sockets=frozenset({_socket(number)}),
    )


MACHINE = Machine(
    cpu=processor(frozenset(range(2 * CORES))),
    memory_mib=CELLS * MEMORY_MIB,
    disk_gib=DISK_GIB,
    numa=Topology(tuple(_cell(number) for number in range(CELLS))),
    pci=(
        *network_card("0000:18:00.0", numa_node=0, enabled=4, maximum=8),
        *network_card("0000:af:00.0", numa_node=2, enabled=4, maximum=8),
    ),
)


class NumaDriver(FakeDriver):
    """``fake.numa``: a host with NUMA cells."""

    described = MACHINE
