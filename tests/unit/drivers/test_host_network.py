"""What a function of a network card is to the host: its interface, its card's serial number, and
who uses it.
"""

import pytest

from agent.model.devices import PciAddress, PciDevice
from drivers.host import pci
from drivers.host.sysfs import Sysfs
from tests.support.recorded_sysfs import RecordedSysfs, smt_host

PF, VF = "0000:3b:00.0", "0000:3b:02.0"
FOLDERS = {address: f"devices/pci0000:3b/{address}" for address in (PF, VF)}


@pytest.fixture
def tree(tmp_path):
    return smt_host(tmp_path / "sys")


def device(tree: RecordedSysfs, address: str) -> PciDevice:
    reading = pci.read_devices(Sysfs(tree.root))
    assert reading.faults == ()
    return next(one for one in reading.value if one.address == PciAddress.parse(address))


def interface(tree: RecordedSysfs, address: str, name: str, **files: str) -> None:
    for file, text in {"address": "52:54:00:6d:90:02", "flags": "0x1002", **files}.items():
        tree.write(f"{FOLDERS[address]}/net/{name}/{file}", text)


class TestInterface:
    def test_of_a_physical_function_with_its_mac_address(self, tree):
        interface(tree, PF, "ens1f0")
        found = device(tree, PF)
        assert (found.netdev, found.mac_address) == ("ens1f0", "52:54:00:6d:90:02")

    def test_of_a_virtual_function_has_no_mac_address_worth_telling(self, tree):
        interface(tree, VF, "ens1f0v0")
        found = device(tree, VF)
        assert (found.netdev, found.mac_address) == ("ens1f0v0", None)

    def test_is_none_while_a_guest_has_the_function(self, tree):
        found = device(tree, PF)
        assert (found.netdev, found.mac_address) == (None, None)

    def test_of_a_card_that_switches_by_itself_is_the_one_of_the_uplink(self, tree):
        for name, port in {
            "eth0": "pf0vf0",
            "eth1": "c1pf0vf1",
            "eth2": "pf0sf88",
            "eth3": "p0",
        }.items():
            interface(tree, PF, name, phys_port_name=port)
        assert device(tree, PF).netdev == "eth3"

    def test_without_a_port_name_is_the_first(self, tree):
        interface(tree, PF, "ib1")
        interface(tree, PF, "ib0")
        assert device(tree, PF).netdev == "ib0"


class TestHostUse:
    def test_interface_that_is_up_is_used(self, tree):
        interface(tree, VF, "ens1f0v0", flags="0x1003")
        assert device(tree, VF).host_use == "interface ens1f0v0 is up"

    def test_interface_that_is_down_is_not(self, tree):
        interface(tree, VF, "ens1f0v0")
        assert device(tree, VF).host_use is None

    def test_physical_function_is_not_told_because_it_is_up_for_the_others(self, tree):
        interface(tree, PF, "ens1f0", flags="0x1003")
        assert device(tree, PF).host_use is None

    @pytest.mark.parametrize(
        ("driver", "enabled", "use"),
        [
            ("vfio-pci", "1", "a program has it by vfio-pci"),
            ("vfio-pci", "0", None),
            ("vfio-pci", None, None),
            ("uio_pci_generic", "1", "a program has it by uio_pci_generic"),
            ("iavf", "1", None),
        ],
    )
    def test_driver_that_lends_the_function_to_a_program(self, tree, driver, enabled, use):
        tree.link(f"{FOLDERS[VF]}/driver", f"../../../bus/pci/drivers/{driver}")
        if enabled is not None:
            tree.write(f"{FOLDERS[VF]}/enable", enabled)
        assert device(tree, VF).host_use == use

    def test_flags_that_are_none_are_a_fault(self, tree):
        interface(tree, VF, "ens1f0v0", flags="up")
        (fault,) = pci.read_devices(Sysfs(tree.root)).faults
        assert "net/ens1f0v0/flags: 'up' are no flags" in fault


def field(keyword: bytes, value: bytes) -> bytes:
    return keyword + bytes([len(value)]) + value


def large(tag: int, content: bytes) -> bytes:
    return bytes([0x80 | tag]) + len(content).to_bytes(2, "little") + content


NAME, END = large(0x02, b"ConnectX-6"), b"\x78"
READ_ONLY = large(
    0x10, field(b"PN", b"MCX6") + field(b"SN", b"MT2113X00001  \0") + field(b"RV", b"\x10")
)


class TestSerialNumber:
    def serial_number(self, tree, data, address=PF):
        (tree.root / f"{FOLDERS[address]}/vpd").write_bytes(data)
        return device(tree, address).serial_number

    def test_is_read_from_the_vital_product_data(self, tree):
        assert self.serial_number(tree, NAME + READ_ONLY + END) == "MT2113X00001"

    def test_of_a_virtual_function_is_only_its_own(self, tree):
        assert self.serial_number(tree, NAME + READ_ONLY + END) == "MT2113X00001"
        assert device(tree, VF).serial_number is None
        assert (
            self.serial_number(tree, READ_ONLY.replace(b"MT2113X00001", b"MT2113X00002") + END, VF)
            == "MT2113X00002"
        )

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            END,
            END + READ_ONLY,
            NAME,
            NAME + READ_ONLY[:-20],
            NAME + large(0x10, field(b"PN", b"MCX6")) + END,
            large(0x10, field(b"SN", b"  \0")),
            large(0x10, field(b"SN", b"\xff\xfe")),
            large(0x10, field(b"SN", b"a\x1b[1m")),
            large(0x11, field(b"SN", b"writable")),
            b"\xff" * 1000,
            b"\x00" * 1000,
            b"\x90",
        ],
    )
    def test_data_without_one_says_nothing(self, tree, data):
        assert self.serial_number(tree, data) is None

    def test_small_resources_are_passed_over(self, tree):
        assert self.serial_number(tree, b"\x22ab" + READ_ONLY) == "MT2113X00001"

    def test_of_what_is_no_network_controller_is_not_read(self, tree):
        tree.write(f"{FOLDERS[PF]}/class", "0x030200")
        assert self.serial_number(tree, NAME + READ_ONLY + END) is None

    def test_data_that_cannot_be_read_is_no_fault(self, tree):
        (tree.root / f"{FOLDERS[PF]}/vpd").mkdir()
        assert device(tree, PF).serial_number is None


def test_product_of_the_virtual_functions(tree):
    tree.write(f"{FOLDERS[PF]}/sriov_vf_device", "154C")
    assert device(tree, PF).virtual_function_product_id == "154c"
    assert device(tree, VF).virtual_function_product_id is None


def test_product_of_the_virtual_functions_that_is_none_is_a_fault(tree):
    tree.write(f"{FOLDERS[PF]}/sriov_vf_device", "many")
    (fault,) = pci.read_devices(Sysfs(tree.root)).faults
    assert "sriov_vf_device: '0xmany' is not 0x and 4 hexadecimal digits" in fault


def test_virtual_function_with_a_vdpa_device_is_of_that_type(tree):
    tree.write(f"{FOLDERS[VF]}/vdpa0/uevent", "")
    tree.write(f"{FOLDERS[PF]}/vdpa1/uevent", "")
    assert (device(tree, VF).type, device(tree, PF).type) == ("vdpa", "type-PF")


def test_label(tree):
    tree.write(f"{FOLDERS[PF]}/label", "NIC in slot 3")
    assert (device(tree, PF).label, device(tree, VF).label) == ("NIC in slot 3", None)
