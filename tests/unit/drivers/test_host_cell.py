"""NUMA cells with their memory, pages, distances, cores; and cells that cannot be read."""

from pathlib import Path

import psutil
import pytest

from agent.model.topology import Cell, PagePool
from drivers.host.cpu import read_topology
from drivers.host.sysfs import Sysfs
from tests.support.recorded_sysfs import RecordedSysfs, smt_host

ONLINE = frozenset({0, 1, 2, 3, 4, 5, 8})
NODE = "devices/system/node"


@pytest.fixture
def tree(tmp_path: Path) -> RecordedSysfs:
    return smt_host(tmp_path / "sys")


def read(tree: RecordedSysfs, online: frozenset[int] = ONLINE):
    return read_topology(Sysfs(tree.root), online)


def test_sparse_memory_only_and_memoryless_cells_are_all_there(tree):
    reading = read(tree)
    assert reading.faults == ()
    assert reading.value.cells == (
        Cell(
            0,
            frozenset(range(4)),
            4095,
            (PagePool(2048, 512, 500), PagePool(1048576, 1, 0)),
            {0: 10, 8: 20, 9: 30, 250: 80},
            (frozenset({0, 2}), frozenset({1, 3})),
            frozenset({0}),
        ),
        Cell(
            8,
            frozenset(range(4, 8)),
            8192,
            (PagePool(2048, 0, 0), PagePool(1048576, 0, 0)),
            {0: 20, 8: 10, 9: 30, 250: 80},
            (frozenset({4}), frozenset({5})),
            frozenset({1}),
        ),
        Cell(
            9,
            frozenset({8}),
            0,
            (),
            {0: 30, 8: 30, 9: 10, 250: 80},
            (frozenset({8}),),
            frozenset({2}),
        ),
        Cell(250, frozenset(), 2048, (), {0: 80, 8: 80, 9: 80, 250: 10}),
    )


def test_memory_of_the_host_is_the_sum_of_what_its_cells_round_down_to(tree):
    assert read(tree).value.memory_mib == 4095 + 8192 + 2048


def test_folder_of_an_offline_cell_is_no_cell(tree):
    tree.cells_online("0,8,250")
    tree.write(f"{NODE}/node0/distance", "10 20 80")
    tree.write(f"{NODE}/node8/distance", "20 10 80")
    tree.write(f"{NODE}/node250/distance", "80 80 10")
    reading = read(tree)
    assert [cell.id for cell in reading.value.cells] == [0, 8, 250]
    assert reading.value.cells[0].distances == {0: 10, 8: 20, 250: 80}
    assert reading.faults == ()


def test_distances_may_be_missing_or_have_columns_of_cells_that_are_gone(tree):
    tree.remove(f"{NODE}/node0/distance")
    tree.write(f"{NODE}/node250/distance", "80 80 80 10 90 90")
    cells = read(tree).value.cells
    assert cells[0].distances == {}
    assert cells[3].distances == {0: 80, 8: 80, 9: 80, 250: 10}


@pytest.mark.parametrize(
    ("file", "text", "what"),
    [
        ("meminfo", "Node 8 MemFree: 12 kB", "has no MemTotal"),
        ("meminfo", "Node 8 MemTotal:    838", "has no MemTotal"),
        ("meminfo", "", "has no MemTotal"),
        ("cpulist", "4-", "neither a CPU number nor a range"),
        ("distance", "20 10 30", "is not a distance for each of 4 cells"),
        ("distance", "20 1x 30 80", "is not a distance for each of 4 cells"),
        ("distance", f"{'9' * 5000} 20 30 80", "is not a distance for each of 4 cells"),
        ("hugepages/hugepages-2048kB/nr_hugepages", "many", "is not a number"),
        ("hugepages/hugepages-2048kB/nr_hugepages", "4000000000", "is more than 2147483647"),
    ],
)
def test_malformed_cell_is_set_aside_and_named(tree, file, text, what):
    tree.write(f"{NODE}/node8/{file}", text)
    reading = read(tree)
    assert [cell.id for cell in reading.value.cells] == [0, 9, 250]
    assert len(reading.faults) == 1
    assert reading.faults[0].startswith(f"cell 8: {tree.root}/{NODE}/node8/{file}: ")
    assert what in reading.faults[0]


@pytest.mark.parametrize("file", ["meminfo", "cpulist", "hugepages/hugepages-2048kB/nr_hugepages"])
def test_cell_with_a_file_missing_is_set_aside_and_named(tree, file):
    tree.remove(f"{NODE}/node8/{file}")
    reading = read(tree)
    assert [cell.id for cell in reading.value.cells] == [0, 9, 250]
    assert [fault.partition(":")[0] for fault in reading.faults] == ["cell 8"]


def test_cell_whose_cores_cannot_be_told_is_set_aside(tree):
    tree.write("devices/system/cpu/cpu1/topology/thread_siblings_list", "0-")
    reading = read(tree)
    assert [cell.id for cell in reading.value.cells] == [8, 9, 250]
    assert "cpu1/topology/thread_siblings_list" in reading.faults[0]


def test_cell_that_is_online_and_has_no_folder_is_named(tree):
    tree.cells_online("0,8-9,77,250")
    for cell in (0, 8, 9, 250):
        tree.remove(f"{NODE}/node{cell}/distance")
    reading = read(tree)
    assert [cell.id for cell in reading.value.cells] == [0, 8, 9, 250]
    assert [fault.partition(":")[0] for fault in reading.faults] == ["cell 77"]


@pytest.mark.parametrize("text", ["", "0-"])
def test_damaged_list_of_cells_is_not_a_host_without_cells(tree, text):
    tree.cells_online(text)
    reading = read(tree)
    assert reading.value.cells == ()
    assert f"{tree.root}/{NODE}/online: " in reading.faults[0]


def test_without_cells_the_whole_host_is_cell_0(tmp_path):
    tree = RecordedSysfs(tmp_path / "sys")
    tree.cpu(0, (0, 1))
    tree.cpu(1, (0, 1))
    tree.cpu(2, online=False)
    tree.pages(None, {2048: (4, 3)})
    reading = read(tree, frozenset({0, 1}))
    assert reading.faults == ()
    assert reading.value.cells == (
        Cell(
            0,
            frozenset({0, 1, 2}),
            psutil.virtual_memory().total // 2**20,
            (PagePool(2048, 4, 3),),
            {0: 10},
            (frozenset({0, 1}),),
            frozenset({0}),
        ),
    )


def test_host_without_cells_that_cannot_be_read_is_named(tmp_path):
    tree = RecordedSysfs(tmp_path / "sys")
    tree.cpu(0, ())
    reading = read(tree, frozenset({0}))
    assert reading.value.cells == ()
    assert "cpu0/topology" in reading.faults[0]
