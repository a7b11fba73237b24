"""PCI functions: identity, SR-IOV relations, wide domains; and those that cannot be read."""

import shutil
from pathlib import Path

import pytest

from agent.model.devices import PciAddress, PciDevice
from drivers.host import pci
from drivers.host.sysfs import Sysfs
from tests.support.recorded_sysfs import RecordedSysfs, smt_host

PF, VF_0, VF_1 = (
    PciAddress.parse(text) for text in ("0000:3b:00.0", "0000:3b:02.0", "0000:3b:02.1")
)
BRIDGE, WIDE = PciAddress.parse("0000:00:1f.0"), PciAddress.parse("10000:00:04.0")


@pytest.fixture
def tree(tmp_path: Path) -> RecordedSysfs:
    return smt_host(tmp_path / "sys")


def test_devices_with_their_relations_by_address(tree):
    reading = pci.read_devices(Sysfs(tree.root))
    assert reading.faults == ()
    assert reading.value == (
        PciDevice(BRIDGE, "8086", "a1c1", 0x060100),
        PciDevice(
            PF,
            "8086",
            "1572",
            0x020000,
            0,
            virtual_functions=(VF_0, VF_1),
            max_virtual_functions=4,
            kernel_driver="i40e",
        ),
        PciDevice(VF_0, "8086", "154c", 0x020000, 0, physical_function=PF),
        PciDevice(VF_1, "8086", "154c", 0x020000, 0, physical_function=PF),
        PciDevice(WIDE, "1af4", "1001", 0x010000, kernel_driver="virtio-pci"),
    )


def test_class_and_cell_may_be_missing(tree):
    tree.remove("devices/pci0000:00/0000:00:1f.0/class")
    tree.remove("devices/pci0000:00/0000:00:1f.0/numa_node")
    assert pci.read_devices(Sysfs(tree.root)).value[0] == PciDevice(BRIDGE, "8086", "a1c1")


@pytest.mark.parametrize(
    ("file", "text", "what"),
    [
        ("vendor", "", "is not 0x and 4 hexadecimal digits"),
        ("vendor", "0x80", "is not 0x and 4 hexadecimal digits"),
        ("device", "8086", "is not 0x and 4 hexadecimal digits"),
        ("device", "0x80860", "is not 0x and 4 hexadecimal digits"),
        ("class", "0x0200", "is not 0x and 6 hexadecimal digits"),
        ("numa_node", "one", "is not a number"),
        ("sriov_totalvfs", "lots", "is not a number"),
    ],
)
def test_malformed_device_is_set_aside_and_named(tree, file, text, what):
    tree.write(f"devices/pci0000:3b/0000:3b:00.0/{file}", text)
    reading = pci.read_devices(Sysfs(tree.root))
    assert [device.address for device in reading.value] == [BRIDGE, VF_0, VF_1, WIDE]
    assert len(reading.faults) == 1
    assert f"{tree.root}/bus/pci/devices/0000:3b:00.0/{file}: " in reading.faults[0]
    assert what in reading.faults[0]


@pytest.mark.parametrize("link", ["physfn", "virtfn3"])
def test_relation_to_what_is_no_device_is_named(tree, link):
    tree.link(f"devices/pci0000:3b/0000:3b:00.0/{link}", "../nowhere")
    reading = pci.read_devices(Sysfs(tree.root))
    assert PF not in {device.address for device in reading.value}
    assert f"{link}: 'nowhere' is not a PCI address" in reading.faults[0]


def test_device_without_identity_is_set_aside(tree):
    tree.remove("devices/pci0000:00/0000:00:1f.0/vendor")
    reading = pci.read_devices(Sysfs(tree.root))
    assert BRIDGE not in {device.address for device in reading.value}
    assert "0000:00:1f.0/vendor: no such file" in reading.faults[0]


def test_link_to_a_device_that_the_recording_lacks_is_named(tree):
    shutil.rmtree(tree.root / "devices/pci0000:00")
    reading = pci.read_devices(Sysfs(tree.root))
    assert [device.address for device in reading.value] == [PF, VF_0, VF_1, WIDE]
    assert len(reading.faults) == 1


def test_name_that_is_no_address_is_named_with_its_control_characters_escaped(tree):
    tree.link("bus/pci/devices/0000:00\n", "../../../devices/pci0000:00/0000:00:1f.0")
    reading = pci.read_devices(Sysfs(tree.root))
    assert len(reading.value) == 5
    assert r"0000:00\n: " in reading.faults[0]


def test_link_out_of_the_recording_sets_the_device_aside(tree):
    tree.link("bus/pci/devices/0000:00:1f.0", "../../../../../devices")
    assert "leads out of the tree" in pci.read_devices(Sysfs(tree.root)).faults[0]


def test_device_unplugged_while_it_is_read_is_no_fault(tree):
    class Unplugging(Sysfs):
        def optional_text(self, path: str) -> str | None:
            if (
                path.endswith("1f.0/class")
                and (tree.root / "bus/pci/devices/0000:00:1f.0").is_symlink()
            ):
                tree.remove("bus/pci/devices/0000:00:1f.0")
            return super().optional_text(path)

    reading = pci.read_devices(Unplugging(tree.root))
    assert [device.address for device in reading.value] == [PF, VF_0, VF_1, WIDE]
    assert reading.faults == ()


def test_bus_that_cannot_be_listed_is_not_a_bus_without_devices(tree):
    shutil.rmtree(tree.root / "bus/pci/devices")
    tree.link("bus/pci/devices", "/elsewhere")
    reading = pci.read_devices(Sysfs(tree.root))
    assert reading.value == ()
    assert f"{tree.root}/bus/pci/devices: " in reading.faults[0]
