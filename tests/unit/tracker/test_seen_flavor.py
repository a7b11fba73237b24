from typing import Any

import pytest

from agent.model.facts import Domain
from agent.model.instance import GuestCell, PlacedCell
from agent.model.names import ConsumerUuid
from agent.numa.host import HostCell, Pages
from agent.numa.request import guest_of
from agent.tracker.seen_guest import seen_flavor
from tests.unit.tracker.samples import pinned

PAGED = [
    HostCell(number, frozenset({0}), frozenset({1}), 100, pages=(Pages(4, 10), Pages(2048, 10)))
    for number in range(2)
]


def guest(*cells: PlacedCell, memory_mib: int = 512, **fields: Any) -> Domain:
    return Domain(
        ConsumerUuid("3d7b8f52-9d0c-4f5e-8c39-5e0b6a7c1a11"), "x", memory_mib, cells=cells, **fields
    )


def floating(cell: int, *cpus: int, memory_mib: int = 1024, **fields: Any) -> PlacedCell:
    return PlacedCell(GuestCell(frozenset(cpus), frozenset(), memory_mib), cell, **fields)


def test_guests_that_look_the_same_have_one_flavor():
    one, same, other = (
        seen_flavor(guest(*cells), 2, ())
        for cells in ([pinned(0, 4, 5)], [pinned(1, 12, 13)], [floating(0, 0, 1)])
    )
    assert one == same
    assert (one.memory_mb, one.vcpus) == (other.memory_mb, other.vcpus)
    assert one.id != other.id


@pytest.mark.parametrize(
    ("cells", "specs"),
    [
        (
            [floating(0, 0, 1)],
            {"hw:numa_nodes": "1", "hw:numa_cpus.0": "0-1", "hw:numa_mem.0": "1024"},
        ),
        (
            [pinned(0, 4, 5)],
            {
                "hw:numa_nodes": "1",
                "hw:numa_cpus.0": "0-1",
                "hw:numa_mem.0": "1024",
                "hw:cpu_policy": "dedicated",
            },
        ),
        (
            [
                PlacedCell(
                    GuestCell(frozenset({0}), frozenset({1}), 64), 0, 4, {1: 4}, frozenset({5})
                ),
                floating(1, 2, memory_mib=32),
            ],
            {
                "hw:numa_nodes": "2",
                "hw:numa_cpus.0": "0-1",
                "hw:numa_mem.0": "64",
                "hw:numa_cpus.1": "2",
                "hw:numa_mem.1": "32",
                "hw:cpu_policy": "mixed",
                "hw:cpu_dedicated_mask": "1",
                "hw:emulator_threads_policy": "isolate",
            },
        ),
        (
            [floating(number, number, page_size_kib=2048) for number in range(2)],
            {
                "hw:numa_nodes": "2",
                "hw:numa_cpus.0": "0",
                "hw:numa_mem.0": "1024",
                "hw:numa_cpus.1": "1",
                "hw:numa_mem.1": "1024",
                "hw:mem_page_size": "2048",
            },
        ),
    ],
)
def test_the_specs_ask_for_the_cells_that_are_seen(cells, specs):
    seen = guest(*cells, memory_mib=sum(cell.cell.memory_mib for cell in cells))
    flavor = seen_flavor(seen, sum(len(cell.cell.cpus) for cell in cells), PAGED)
    assert flavor.extra_specs == specs
    asked = guest_of(flavor.vcpus, flavor.memory_mb, flavor.extra_specs, {})
    assert asked is not None
    assert asked.cells == tuple(cell.cell for cell in cells)


def test_cpus_and_memory_that_are_in_no_cell_of_the_host_are_in_the_first_one():
    second = PlacedCell(GuestCell(frozenset(), frozenset({3}), 1024), 1, None, {3: 12})
    flavor = seen_flavor(guest(pinned(0, 4, 5), second, memory_mib=4096), 4, PAGED)
    assert (flavor.vcpus, flavor.memory_mb) == (4, 4096)
    assert flavor.extra_specs == {
        "hw:numa_nodes": "2",
        "hw:numa_cpus.0": "0-2",
        "hw:numa_mem.0": "3072",
        "hw:numa_cpus.1": "3",
        "hw:numa_mem.1": "1024",
        "hw:cpu_policy": "mixed",
        "hw:cpu_dedicated_mask": "0-1,3",
    }
    asked = guest_of(flavor.vcpus, flavor.memory_mb, flavor.extra_specs, {})
    assert asked is not None
    assert [(cell.shared, cell.dedicated) for cell in asked.cells] == [({2}, {0, 1}), (set(), {3})]
