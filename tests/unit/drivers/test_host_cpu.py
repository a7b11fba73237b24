"""Which CPUs run, which share a core, and of what kind they are."""

import os
from pathlib import Path

import pytest

from agent.errors import DriverError, NotReady
from drivers.host import cpu
from drivers.host.cpu import Cores, read_cores
from drivers.host.sysfs import Sysfs
from tests.support.recorded_sysfs import RecordedSysfs


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
    assert read_cores(Sysfs(tree.root), frozenset(range(4))) == Cores(
        (frozenset({0, 2}), frozenset({1, 3})), frozenset({0, 1})
    )


def test_threads_that_are_offline_or_of_another_cell_are_no_siblings_here(tree):
    tree.cpu(0, (0, 1, 2, 3))
    tree.cpu(2, (0, 1, 2, 3))
    assert read_cores(Sysfs(tree.root), frozenset({0, 2})).siblings == (frozenset({0, 2}),)


def test_cpu_without_topology_is_a_core_of_its_own_and_of_no_package(tree):
    assert read_cores(Sysfs(tree.root), frozenset({3})) == Cores((frozenset({3}),), frozenset())


def test_unknown_package_is_no_package(tree):
    tree.cpu(0, package=-1)
    assert read_cores(Sysfs(tree.root), frozenset({0})).sockets == frozenset()


@pytest.mark.parametrize("second", [(0, 1), (0,), ()])
def test_cores_that_overlap_are_refused(tree, second):
    tree.cpu(0, (0,))
    tree.cpu(1, second)
    with pytest.raises(DriverError, match="cpu1/topology: its siblings"):
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
