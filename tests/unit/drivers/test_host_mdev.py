"""Parents of mediated devices in /sys, and those that cannot be read."""

import pytest

from agent.model.devices import Mdev, MdevParent
from agent.model.facts import PartialRead
from drivers.host import CAPACITIES, read_encryption, read_parents
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


# --- sEV and TDX in /sys, and what cannot be read of them ---


SEV, ES, SNP = (f"module/kvm_amd/parameters/{name}" for name in ("sev", "sev_es", "sev_snp"))
TDX = "module/kvm_intel/parameters/tdx"
BOTH = "sev 15\nsev_es 100"


@pytest.mark.parametrize(
    ("files", "contexts", "fault"),
    [
        *(
            ({SEV: "Y", ES: "Y", SNP: "N", file: BOTH}, {"sev": 15, "sev_es": 100}, "")
            for file in CAPACITIES
        ),
        # SNP has the contexts of ES.
        (
            {SEV: "1", ES: "1", SNP: "1", CAPACITIES[0]: BOTH},
            {"sev": 15, "sev_es": 100, "sev_snp": 100},
            "",
        ),
        # The firmware left none of SEV.
        ({SEV: "Y", ES: "Y", CAPACITIES[0]: "sev_es 509"}, {"sev": 0, "sev_es": 509}, ""),
        # Without the controller nobody says how many there are.
        ({SEV: "Y", ES: "N"}, {"sev": None}, ""),
        ({TDX: "Y", CAPACITIES[0]: "tdx 31"}, {"tdx": 31}, ""),
        ({}, None, ""),
        ({SEV: "N", ES: "0", CAPACITIES[0]: "garbled, but nobody asks"}, None, ""),
        ({SEV: "maybe", CAPACITIES[0]: "sev 15"}, None, f"{SEV}: 'maybe' is neither Y nor N"),
        (
            {SEV: "Y", CAPACITIES[0]: "sev max"},
            None,
            f"{CAPACITIES[0]}: 'sev max' is not a list of names and numbers",
        ),
    ],
)
def test_techniques_that_are_on_have_their_contexts_and_what_makes_no_sense_is_named(
    tmp_path, files, contexts, fault
):
    tree = RecordedSysfs(tmp_path / "sys")
    for file, text in files.items():
        tree.write(file, text)
    reading = read_encryption(Sysfs(tree.root))
    assert (reading.value and reading.value.contexts) == contexts
    assert reading.faults == ((f"{tree.root}/{fault}",) if fault else ())
