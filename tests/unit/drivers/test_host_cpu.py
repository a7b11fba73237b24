"""Which CPUs run, which share a core, and of what kind they are."""

import os
from pathlib import Path

import psutil
import pytest

from agent.errors import DriverError, NotReady
from agent.model.facts import Cell, PagePool
from drivers.host import cpu
from drivers.host.cpu import read_cores, read_topology
from drivers.host.sysfs import Sysfs
from tests.support.recorded_sysfs import RecordedSysfs, smt_host


@pytest.fixture
def tree(tmp_path: Path) -> RecordedSysfs:
    return RecordedSysfs(tmp_path / "sys")


def test_without_the_list_a_cpu_with_a_topology_runs(tree):
    tree.cpu(0)
    tree.cpu(1, online=False)
    tree.cpu(12)
    reading = cpu.read_online(Sysfs(tree.root))
    assert (reading.value, reading.faults) == ({0, 12}, ())


@pytest.mark.parametrize(
    ("text", "what"), [("0-", "neither a CPU number nor a range"), ("", "lists no CPU")]
)
def test_damaged_list_is_named_and_the_topologies_stand_in(tree, text, what):
    tree.cpu(0)
    tree.cpu(1)
    tree.cpus_online(text)
    reading = cpu.read_online(Sysfs(tree.root))
    assert reading.value == {0, 1}
    assert len(reading.faults) == 1
    assert f"{tree.root}/devices/system/cpu/online: " in reading.faults[0]
    assert what in reading.faults[0]


@pytest.mark.parametrize("form", ["list", "map", "core_list", "core_map"])
def test_siblings_in_every_form_the_kernel_has_had(tree, form):
    for number in range(4):
        tree.cpu(number, (number % 2, number % 2 + 2), package=number % 2, form=form)
    assert read_cores(Sysfs(tree.root), frozenset(range(4))) == (
        (frozenset({0, 2}), frozenset({1, 3})),
        frozenset({0, 1}),
    )


def test_threads_that_are_offline_or_of_another_cell_are_no_siblings_here(tree):
    tree.cpu(0, (0, 1, 2, 3))
    tree.cpu(2, (0, 1, 2, 3))
    assert read_cores(Sysfs(tree.root), frozenset({0, 2}))[0] == (frozenset({0, 2}),)


def test_cpu_without_topology_is_a_core_of_its_own_and_of_no_package(tree):
    assert read_cores(Sysfs(tree.root), frozenset({3})) == ((frozenset({3}),), frozenset())


def test_unknown_package_is_no_package(tree):
    tree.cpu(0, package=-1)
    assert read_cores(Sysfs(tree.root), frozenset({0}))[1] == frozenset()


@pytest.mark.parametrize("second", [(0, 1), (0,), ()])
def test_cores_that_overlap_are_refused(tree, second):
    tree.cpu(0, (0,))
    tree.cpu(1, second)
    with pytest.raises(DriverError, match="the siblings of CPU 1 contradict"):
        read_cores(Sysfs(tree.root), frozenset({0, 1}))


@pytest.mark.parametrize(
    ("text", "model", "vendor", "features"),
    [
        (
            (
                "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 85\nmodel name\t: Xeon: "
                "Gold\nflags\t\t: fpu vmx\n\nprocessor\t: 1\nflags\t\t: other\n"
            ),
            "Xeon: Gold",
            "GenuineIntel",
            {"fpu", "vmx"},
        ),
        (
            "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n\n",
            "",
            "0x41",
            {"fp", "asimd"},
        ),
        (
            "processor\t: 0\ncpu\t\t: POWER9, altivec supported\n\ntimebase\t: 512000000\n",
            "POWER9, altivec supported",
            "",
            set(),
        ),
        ("", "", "", set()),
    ],
)
def test_kind_is_that_of_the_first_cpu_on_any_architecture(
    tmp_path, monkeypatch, text, model, vendor, features
):
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(cpu, "CPUINFO", tmp_path / "cpuinfo")
    kind = cpu.read_kind()
    assert (kind.architecture, kind.model, kind.vendor, kind.features) == (
        os.uname().machine,
        model,
        vendor,
        features,
    )


def test_unreadable_cpuinfo_is_worth_asking_again(tmp_path, monkeypatch):
    monkeypatch.setattr(cpu, "CPUINFO", tmp_path / "cpuinfo")
    with pytest.raises(NotReady, match="cpuinfo: No such file"):
        cpu.read_kind()


# --- nUMA cells with their memory, pages, distances, cores; and cells that cannot be read ---


ONLINE = frozenset({0, 1, 2, 3, 4, 5, 8})
NODE = "devices/system/node"


@pytest.fixture
def recording(tmp_path: Path) -> RecordedSysfs:
    return smt_host(tmp_path / "sys")


def read(recording: RecordedSysfs, online: frozenset[int] = ONLINE):
    return read_topology(Sysfs(recording.root), online)


def test_sparse_memory_only_and_memoryless_cells_are_all_there(recording):
    reading = read(recording)
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


def test_memory_of_the_host_is_the_sum_of_what_its_cells_round_down_to(recording):
    assert read(recording).value.memory_mib == 4095 + 8192 + 2048


def test_folder_of_an_offline_cell_is_no_cell(recording):
    recording.cells_online("0,8,250")
    recording.write(f"{NODE}/node0/distance", "10 20 80")
    recording.write(f"{NODE}/node8/distance", "20 10 80")
    recording.write(f"{NODE}/node250/distance", "80 80 10")
    reading = read(recording)
    assert [cell.id for cell in reading.value.cells] == [0, 8, 250]
    assert reading.value.cells[0].distances == {0: 10, 8: 20, 250: 80}
    assert reading.faults == ()


def test_distances_may_be_missing_or_have_columns_of_cells_that_are_gone(recording):
    recording.remove(f"{NODE}/node0/distance")
    recording.write(f"{NODE}/node250/distance", "80 80 80 10 90 90")
    cells = read(recording).value.cells
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
def test_malformed_cell_is_set_aside_and_named(recording, file, text, what):
    recording.write(f"{NODE}/node8/{file}", text)
    reading = read(recording)
    assert [cell.id for cell in reading.value.cells] == [0, 9, 250]
    assert len(reading.faults) == 1
    assert reading.faults[0].startswith(f"cell 8: {recording.root}/{NODE}/node8/{file}: ")
    assert what in reading.faults[0]


@pytest.mark.parametrize("file", ["meminfo", "cpulist", "hugepages/hugepages-2048kB/nr_hugepages"])
def test_cell_with_a_file_missing_is_set_aside_and_named(recording, file):
    recording.remove(f"{NODE}/node8/{file}")
    reading = read(recording)
    assert [cell.id for cell in reading.value.cells] == [0, 9, 250]
    assert [fault.partition(":")[0] for fault in reading.faults] == ["cell 8"]


def test_cell_whose_cores_cannot_be_told_is_set_aside(recording):
    recording.write("devices/system/cpu/cpu1/topology/thread_siblings_list", "0-")
    reading = read(recording)
    assert [cell.id for cell in reading.value.cells] == [8, 9, 250]
    assert "cpu1/topology/thread_siblings_list" in reading.faults[0]


def test_cell_that_is_online_and_has_no_folder_is_named(recording):
    recording.cells_online("0,8-9,77,250")
    for cell in (0, 8, 9, 250):
        recording.remove(f"{NODE}/node{cell}/distance")
    reading = read(recording)
    assert [cell.id for cell in reading.value.cells] == [0, 8, 9, 250]
    assert [fault.partition(":")[0] for fault in reading.faults] == ["cell 77"]


@pytest.mark.parametrize("text", ["", "0-"])
def test_damaged_list_of_cells_is_not_a_host_without_cells(recording, text):
    recording.cells_online(text)
    reading = read(recording)
    assert reading.value.cells == ()
    assert f"{recording.root}/{NODE}/online: " in reading.faults[0]


def test_without_cells_the_whole_host_is_cell_0(tmp_path):
    recording = RecordedSysfs(tmp_path / "sys")
    recording.cpu(0, (0, 1))
    recording.cpu(1, (0, 1))
    recording.cpu(2, online=False)
    recording.pages(None, {2048: (4, 3)})
    reading = read(recording, frozenset({0, 1}))
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
    recording = RecordedSysfs(tmp_path / "sys")
    recording.cpu(0, ())
    reading = read(recording, frozenset({0}))
    assert reading.value.cells == ()
    assert "the siblings of CPU 0" in reading.faults[0]
