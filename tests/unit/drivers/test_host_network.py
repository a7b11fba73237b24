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


@pytest.mark.parametrize(
    ("address", "names", "netdev", "mac_address"),
    [
        (PF, {"ens1f0": {}}, "ens1f0", "52:54:00:6d:90:02"),
        (VF, {"ens1f0v0": {}}, "ens1f0v0", None),
        (PF, {}, None, None),
        (
            PF,
            {
                name: {"phys_port_name": port}
                for name, port in (
                    ("eth0", "pf0vf0"),
                    ("eth1", "c1pf0vf1"),
                    ("eth2", "pf0sf88"),
                    ("eth3", "p0"),
                )
            },
            "eth3",
            "52:54:00:6d:90:02",
        ),
        (PF, {"ib1": {}, "ib0": {}}, "ib0", "52:54:00:6d:90:02"),
    ],
    ids=[
        "of a physical function with its MAC address",
        "of a virtual function without a MAC address worth telling",
        "none while a guest has the function",
        "that of the uplink of a card that switches by itself",
        "the first without a port name",
    ],
)
def test_the_interface_of_a_function(tree, address, names, netdev, mac_address):
    for name, files in names.items():
        interface(tree, address, name, **files)
    found = device(tree, address)
    assert (found.netdev, found.mac_address) == (netdev, mac_address)


@pytest.mark.parametrize(
    ("address", "flags", "use"),
    [
        (VF, "0x1003", "interface ens1f0v0 is up"),
        (VF, "0x1002", None),
        # It is up for the others.
        (PF, "0x1003", None),
    ],
    ids=["up", "down", "a physical function"],
)
def test_a_function_whose_interface_is_up_is_used_by_the_host(tree, address, flags, use):
    interface(tree, address, "ens1f0v0", flags=flags)
    assert device(tree, address).host_use == use


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
def test_a_driver_that_lends_the_function_to_a_program(tree, driver, enabled, use):
    tree.link(f"{FOLDERS[VF]}/driver", f"../../../bus/pci/drivers/{driver}")
    if enabled is not None:
        tree.write(f"{FOLDERS[VF]}/enable", enabled)
    assert device(tree, VF).host_use == use


@pytest.mark.parametrize(
    ("address", "file", "text", "told"),
    [
        (VF, "net/ens1f0v0/flags", "up", "net/ens1f0v0/flags: 'up' are no flags"),
        (
            PF,
            "sriov_vf_device",
            "many",
            "sriov_vf_device: '0xmany' is not 0x and 4 hexadecimal digits",
        ),
    ],
)
def test_what_makes_no_sense_is_a_fault(tree, address, file, text, told):
    interface(tree, address, "ens1f0v0")
    tree.write(f"{FOLDERS[address]}/{file}", text)
    (fault,) = pci.read_devices(Sysfs(tree.root)).faults
    assert told in fault


def field(keyword: bytes, value: bytes) -> bytes:
    return keyword + bytes([len(value)]) + value


def large(tag: int, content: bytes) -> bytes:
    return bytes([0x80 | tag]) + len(content).to_bytes(2, "little") + content


NAME, END = large(0x02, b"ConnectX-6"), b"\x78"
READ_ONLY = large(
    0x10, field(b"PN", b"MCX6") + field(b"SN", b"MT2113X00001  \0") + field(b"RV", b"\x10")
)


@pytest.mark.parametrize(
    ("data", "serial"),
    [
        (NAME + READ_ONLY + END, "MT2113X00001"),
        # Small resources are passed over.
        (b"\x22ab" + READ_ONLY, "MT2113X00001"),
        (b"", None),
        (END, None),
        (END + READ_ONLY, None),
        (NAME, None),
        (NAME + READ_ONLY[:-20], None),
        (NAME + large(0x10, field(b"PN", b"MCX6")) + END, None),
        (large(0x10, field(b"SN", b"  \0")), None),
        (large(0x10, field(b"SN", b"\xff\xfe")), None),
        (large(0x10, field(b"SN", b"a\x1b[1m")), None),
        (large(0x11, field(b"SN", b"writable")), None),
        (b"\xff" * 1000, None),
        (b"\x00" * 1000, None),
        (b"\x90", None),
    ],
)
def test_the_serial_number_is_read_from_the_vital_product_data(tree, data, serial):
    (tree.root / f"{FOLDERS[PF]}/vpd").write_bytes(data)
    assert (device(tree, PF).serial_number, device(tree, VF).serial_number) == (serial, None)
    # Of what is no network controller it is not read.
    tree.write(f"{FOLDERS[PF]}/class", "0x030200")
    assert device(tree, PF).serial_number is None


def test_a_virtual_function_may_have_a_serial_number_of_its_own(tree):
    (tree.root / f"{FOLDERS[VF]}/vpd").write_bytes(READ_ONLY + END)
    assert device(tree, VF).serial_number == "MT2113X00001"


def test_vital_product_data_that_cannot_be_read_are_no_fault(tree):
    (tree.root / f"{FOLDERS[PF]}/vpd").mkdir()
    assert device(tree, PF).serial_number is None


def test_product_of_the_virtual_functions(tree):
    tree.write(f"{FOLDERS[PF]}/sriov_vf_device", "154C")
    assert device(tree, PF).virtual_function_product_id == "154c"
    assert device(tree, VF).virtual_function_product_id is None


def test_virtual_function_with_a_vdpa_device_is_of_that_type(tree):
    tree.write(f"{FOLDERS[VF]}/vdpa0/uevent", "")
    tree.write(f"{FOLDERS[PF]}/vdpa1/uevent", "")
    assert (device(tree, VF).type, device(tree, PF).type) == ("vdpa", "type-PF")


def test_label(tree):
    tree.write(f"{FOLDERS[PF]}/label", "NIC in slot 3")
    assert (device(tree, PF).label, device(tree, VF).label) == ("NIC in slot 3", None)
