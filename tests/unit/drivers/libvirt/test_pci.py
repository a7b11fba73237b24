"""PCI functions from node devices: identity, relations, interfaces; and those that cannot be
understood.
"""

import time
from dataclasses import replace

import pytest

from agent.model.devices import PciAddress, PciDevice
from agent.model.facts import PartialRead
from drivers.libvirt.pci import read_pci
from drivers.libvirt.raw_capabilities import DeviceAnswer, read_node_devices
from tests.support.libvirt_answers import (
    BRIDGE,
    DEVICES,
    GPU,
    PF,
    VF_0,
    VF_1,
    VPD,
    WIDE,
    net,
    pci,
    physical,
    vdpa,
    virtual,
)


def read(*devices: DeviceAnswer) -> PartialRead[tuple[PciDevice, ...]]:
    return read_pci(read_node_devices(devices), {})


def only(*devices: DeviceAnswer) -> PciDevice:
    reading = read(*devices)
    assert (reading.faults, len(reading.value)) == ((), 1)
    return reading.value[0]


def at(text: str) -> PciAddress:
    return PciAddress.parse(text)


def changed(device: DeviceAnswer, old: str, new: str) -> DeviceAnswer:
    assert old in device.xml
    return replace(device, xml=device.xml.replace(old, new))


def test_functions_with_their_relations_by_address():
    reading = read(*DEVICES)
    assert reading.faults == ()
    assert reading.value == (
        PciDevice(at(BRIDGE), "8086", "a1c1", 0x060100),
        PciDevice(at(GPU), "10de", "1eb8", 0x030200, 0),
        PciDevice(
            at(PF),
            "8086",
            "1572",
            0x020000,
            0,
            virtual_functions=(at(VF_0), at(VF_1)),
            max_virtual_functions=4,
            kernel_driver="i40e",
            netdev="ens4f0",
            mac_address="3c:fd:fe:00:00:01",
        ),
        PciDevice(
            at(VF_0),
            "8086",
            "154c",
            0x020000,
            0,
            physical_function=at(PF),
            kernel_driver="vfio-pci",
        ),
        PciDevice(
            at(VF_1),
            "8086",
            "154c",
            0x020000,
            0,
            physical_function=at(PF),
            netdev="ens4f0v1",
            network_capabilities=("gso", "tso"),
            has_vdpa=True,
        ),
        PciDevice(at(WIDE), "1af4", "1001", 0x010000, kernel_driver="virtio-pci"),
    )
    assert [one.type for one in reading.value] == [
        "type-PCI",
        "type-PCI",
        "type-PF",
        "type-VF",
        "vdpa",
        "type-PCI",
    ]


def test_physical_function_without_any_virtual_one_is_one():
    device = only(physical("0000:5e:00.0", 64))
    assert (device.type, device.max_virtual_functions, device.virtual_functions) == (
        "type-PF",
        64,
        (),
    )


def test_an_older_libvirt_says_only_which_virtual_functions_there_are():
    device = only(changed(physical(PF, 7, VF_0, VF_1), " maxCount='7'", ""))
    assert (device.max_virtual_functions, device.virtual_functions) == (2, (at(VF_0), at(VF_1)))


def test_class_and_cell_may_be_missing_and_a_cell_of_minus_one_is_none():
    assert only(changed(pci(BRIDGE), "<class>0x020000</class>", "")) == PciDevice(
        at(BRIDGE), "8086", "1572"
    )
    assert only(pci(BRIDGE, cell=-1)).numa_node is None


def test_host_use_of_a_virtual_function_is_its_interface_that_is_up():
    device = read(physical(PF, 4, VF_0), virtual(VF_0, PF), net("eth1", VF_0, state="up")).value[1]
    assert device.host_use == "interface eth1 is up"


@pytest.mark.parametrize("state", ["down", "notpresent"])
def test_interface_that_is_off_is_no_use(state):
    assert only(virtual(VF_0, PF), net("eth1", VF_0, state=state)).host_use is None


def test_physical_function_whose_interface_is_up_is_not_in_use():
    assert only(physical(PF, 4), net("eth1", PF, state="up")).host_use is None


def test_interface_of_a_card_that_switches_by_itself_is_its_own_not_one_that_stands_for_a_function():
    device = only(
        physical(PF, 4),
        net("ens4f0npf0vf0", PF, "3c:fd:fe:00:00:09"),
        net("ens4f0np0", PF),
        net("ens4f0npf0vf1", PF, "3c:fd:fe:00:00:0a"),
    )
    assert (device.netdev, device.mac_address) == ("ens4f0np0", "3c:fd:fe:00:00:01")


def test_function_with_only_interfaces_that_stand_for_others_has_none():
    assert (
        only(
            physical(PF, 4), net("ens4f0npf0vf0", PF, "3c:fd:fe:00:00:09"), net("ens4f0npf0vf1", PF)
        ).netdev
        is None
    )


def test_vdpa_of_a_function_that_is_not_virtual_does_not_count():
    assert not only(pci(PF), vdpa(0, PF)).has_vdpa


@pytest.mark.parametrize(
    ("said", "serial"),
    [
        ("MT2113X00000", "MT2113X00000"),
        (" MT&gt;&lt; ", "MT><"),
        ("", None),
        ("MÜ", None),
        ("x" * 256, None),
    ],
)
def test_serial_number_of_the_card(said, serial):
    assert only(pci(PF, more=VPD.format(said))).serial_number == serial


@pytest.mark.parametrize(
    ("fields", "serial"),
    [
        (
            "<serial_number>MT2113</serial_number><vendor_field index='A'>!@#<&></vendor_field>",
            "MT2113",
        ),
        ("<serial_number>MT<&2113</serial_number>", "MT<&2113"),
        ("<serial_number>MT\0</serial_number>", None),
        ("<vendor_field index='0'>\x01</vendor_field>", None),
    ],
    ids=("another-field", "serial-number", "nul", "control"),
)
def test_vital_product_data_that_libvirt_did_not_escape_do_not_hide_the_device(fields, serial):
    broken = (
        "<capability type='vpd'><name>A & B</name><fields "
        f"access='readonly'>{fields}</fields></capability>"
    )
    whole = pci(PF, more=f"<capability type='virt_functions' maxCount='8'/>{broken}", cell=1)
    assert only(whole) == replace(only(physical(PF, 8, cell=1)), serial_number=serial)


def test_vital_product_data_that_end_the_capability_set_the_device_aside():
    reading = read(
        pci(PF, more="<capability type='vpd'><name></capability><</name></capability>"), pci(BRIDGE)
    )
    assert [one.address for one in reading.value] == [at(BRIDGE)]
    assert reading.faults[0].startswith("device pci_0000_3b_00_0: malformed XML")


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("</device>", "", "malformed XML: no element found"),
        ("<device>", "<device", "malformed XML"),
        ("type='pci'", "type=''", "no capability"),
        ("type='pci'", "type='usb'", "it is 'usb', against its name"),
        ("<bus>59</bus>", "", "bus: nothing is not a number"),
        ("<bus>59</bus>", "<bus>256</bus>", "bus: 256 is above 0xff"),
        ("<bus>59</bus>", "<bus>58</bus>", "its address is 0000:3a:00.0, against its name"),
        (
            "<domain>0</domain>",
            "<domain>4294967296</domain>",
            "domain: 4294967296 is above 0xffffffff",
        ),
        ("<slot>0</slot>", "<slot>32</slot>", "slot: 32 is above 0x1f"),
        ("<function>0</function>", "<function>x</function>", "function: 'x' is not a number"),
        ("<vendor id='0x8086'/>", "", "its vendor id '' is not 0x and 4 hexadecimal digits"),
        ("id='0x1572'", "id='1572'", "its product id '1572' is not 0x and 4 hexadecimal digits"),
        ("0x020000", "0x0200", "its class '0x0200' is not 0x and 6 hexadecimal digits"),
        ("maxCount='4'", "maxCount='-4'", "maxCount: -4 is negative"),
        ("bus='0x3b' slot='0x02'", "bus='0x3b'", "virt_functions: slot: nothing is not a number"),
        ("node='0'", "node='zero'", "numa: 'zero' is not a number"),
        (
            "<class>",
            "<capability type='phys_function'/><class>",
            "its physical function has no address",
        ),
    ],
)
def test_function_that_cannot_be_understood_is_set_aside_and_the_others_stay(old, new, what):
    reading = read(pci(BRIDGE), changed(physical(PF, 4, VF_0, cell=0), old, new), virtual(VF_0, PF))
    assert [one.address for one in reading.value] == [at(BRIDGE), at(VF_0)]
    assert len(reading.faults) == 1
    assert reading.faults[0].startswith(f"device pci_0000_3b_00_0: {what}")


def test_device_that_is_listed_twice_counts_once_and_is_named():
    reading = read(pci(PF), pci(PF))
    assert len(reading.value) == 1
    assert reading.faults == ("device pci_0000_3b_00_0: listed twice",)


def test_two_devices_of_one_address_are_a_fault():
    reading = read(pci(PF), replace(pci(PF), name="pci_8086_1572"))
    assert reading.faults == ("device pci_8086_1572: another has its address 0000:3b:00.0",)


@pytest.mark.parametrize(
    ("name", "sections"),
    [
        ("pci_0000_3b_00_0", {"pci", "mdev"}),
        ("net_ens4f0_1", {"pci"}),
        ("vdpa_vdpa0", {"pci"}),
        ("mdev_x", {"mdev"}),
        ("css_0_0_0001", {"pci", "mdev"}),
    ],
)
def test_device_whose_xml_is_garbage_is_named_in_every_part_that_may_lack_it(name, sections):
    devices = read_node_devices([DeviceAnswer(name, None, "<device><capability")])
    assert set(devices.faults) == sections
    assert devices.by_name == {}


def test_two_thousand_functions_are_read_in_one_pass():
    functions = [
        f"0000:{bus:02x}:{slot:02x}.{function}"
        for bus in range(1, 9)
        for slot in range(32)
        for function in range(8)
    ]
    interfaces = [net(f"eth{number}", one) for number, one in enumerate(functions)]
    began = time.process_time()
    assert (
        len(
            read(
                physical(PF, 2048, *functions[:256]),
                *(virtual(one, PF, cell=0) for one in functions),
                *interfaces,
            ).value
        )
        == len(functions) + 1
    )
    # It takes a fifth of a second.
    assert time.process_time() - began < 5
