"""Parents of mediated devices in /sys, and those that cannot be read."""

import pytest

from agent.model.facts import PartialRead
from agent.model.host_units import Mdev, MdevParent
from drivers.host import read_parents
from drivers.host.sysfs import Sysfs
from tests.support.recorded_sysfs import RecordedSysfs

GPU = "0000:06:00.0"
DEVICE = "8a1f2c60-53b7-4c1e-9a43-0f6f2f1f9d01"
FOUND = MdevParent(GPU, "pci", {"nvidia-35": 14, "nvidia-36": 0}, (Mdev(DEVICE, "nvidia-35"),), 1)
TTY = MdevParent("mtty", "mtty", {"mtty-2": 24})


@pytest.fixture
def tree(tmp_path):
    tree = RecordedSysfs(tmp_path / "sys")
    folder = tree.pci(GPU, "10de:1db4", cell=1)
    tree.link(f"{folder}/subsystem", "../../../bus/pci")
    tree.write(f"{folder}/mdev_supported_types/nvidia-35/available_instances", "14")
    tree.write(f"{folder}/mdev_supported_types/nvidia-36/available_instances", "0")
    tree.link(f"{folder}/mdev_supported_types/nvidia-35/devices/{DEVICE}", f"../../../{DEVICE}")
    tree.link(f"class/mdev_bus/{GPU}", f"../../{folder}")
    tree.write("devices/virtual/mtty/mtty/mdev_supported_types/mtty-2/available_instances", "24")
    tree.link("devices/virtual/mtty/mtty/subsystem", "../../../../class/mtty")
    tree.link("class/mdev_bus/mtty", "../../devices/virtual/mtty/mtty")
    return tree


def test_parents_with_their_types_and_devices(tree):
    assert read_parents(Sysfs(tree.root)) == PartialRead((FOUND, TTY))


def test_a_kernel_whose_parents_are_all_gone_has_no_parents(tree):
    tree.remove(f"class/mdev_bus/{GPU}")
    tree.remove("class/mdev_bus/mtty")
    assert read_parents(Sysfs(tree.root)) == PartialRead(())


@pytest.mark.parametrize(
    "file", ["mdev_supported_types/nvidia-36/available_instances", "numa_node"]
)
def test_one_that_cannot_be_read_is_set_aside_and_named(file, tree):
    tree.write(f"class/mdev_bus/{GPU}/{file}", "many")
    assert read_parents(Sysfs(tree.root)) == PartialRead(
        (TTY,), (f"{tree.root}/class/mdev_bus/{GPU}/{file}: 'many' is not a number",)
    )


def test_a_type_of_which_nobody_says_how_many_there_can_be_is_a_fault(tree):
    tree.remove(f"class/mdev_bus/{GPU}/mdev_supported_types/nvidia-36/available_instances")
    assert "available_instances: no such file" in read_parents(Sysfs(tree.root)).faults[0]


def test_a_parent_of_no_bus_or_with_a_strange_name_is_a_fault(tree):
    tree.remove("devices/virtual/mtty/mtty/subsystem")
    tree.link("class/mdev_bus/a:b", "../../devices/virtual/mtty/mtty")
    first, second = read_parents(Sysfs(tree.root)).faults
    assert "is not a PCI address" in first and "subsystem: no such link" in second
