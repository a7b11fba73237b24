"""PCI functions from node devices: identity, relations, interfaces; and those that cannot be
understood.
"""

import time
from dataclasses import replace

import pytest

from agent.model.devices import Mdev, MdevParent, PciAddress, PciDevice
from agent.model.facts import PartialRead
from agent.model.names import ConsumerUuid
from drivers.libvirt.pci import read_mdevs, read_pci
from drivers.libvirt.raw_capabilities import DeviceAnswer, read_node_devices
from tests.unit.drivers.libvirt.libvirt_answers import (
    BRIDGE,
    DEVICES,
    GPU,
    PF,
    VF_0,
    VF_1,
    VPD,
    WIDE,
    cuttable,
    mdev,
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


# --- mediated devices and what can be cut into them, from node devices ---


ONE, TWO = "c6e54b2d-9a0f-4d0e-8a4c-2f3e4d5c6b7a", "0f6c3d4e-5f60-4718-92a3-b4c5d6e7f809"
GUEST = ConsumerUuid("7b1d5f0e-2a52-4c36-9be0-0d5a9f6a9e01")
CSS = DeviceAnswer(
    "css_0_0_fffe",
    "computer",
    "<device><capability "
    "type='css'><cssid>0x0</cssid><ssid>0x0</ssid><devno>0xfffe</devno><capability "
    "type='mdev_types'><type "
    "id='vfio_ccw-io'><availableInstances>1</availableInstances></type></capability></capability></device>",
)
MATRIX = DeviceAnswer(
    "ap_matrix",
    "computer",
    "<device><capability type='ap_matrix'><capability type='mdev_types'><type "
    "id='vfio_ap-passthrough'><availableInstances>65536</availableInstances></type></capability></capability></device>",
)


def parents_of(*devices: DeviceAnswer, owners=None):
    return read_mdevs(read_node_devices(devices), owners or {})


def test_each_device_names_the_guest_that_has_it():
    [parent] = parents_of(
        cuttable(GPU, T=0), mdev(ONE, "T", GPU), mdev(TWO, "T", GPU), owners={ONE: GUEST}
    ).value
    assert parent == MdevParent(
        "0000:06:00.0",
        available={"T": 0},
        mdevs=(Mdev(ONE, "T", GUEST), Mdev(TWO, "T")),
        numa_node=0,
    )


def test_older_libvirts_name_a_device_by_its_uuid_alone_and_newer_ones_write_it():
    old = replace(mdev(ONE, "T", GPU), name=f"mdev_{ONE.replace('-', '_')}")
    new = replace(
        mdev(TWO, "T", GPU),
        name="mdev_card1",
        xml=mdev(TWO, "T").xml.replace("<type", f"<uuid>{TWO.upper()}</uuid><type"),
    )
    [parent] = parents_of(cuttable(GPU, T=1), old, new).value
    assert {one.uuid for one in parent.mdevs} == {ONE, TWO}


def test_parents_that_are_no_pci_functions_are_called_as_the_kernel_calls_them():
    reading = parents_of(CSS, MATRIX)
    assert reading.faults == ()
    assert [(one.bus, one.name, dict(one.available)) for one in reading.value] == [
        ("css", "0.0.fffe", {"vfio_ccw-io": 1}),
        ("ap", "matrix", {"vfio_ap-passthrough": 65536}),
    ]
    assert [one.provider_name("L") for one in reading.value] == ["L_css_0_0_fffe", "L_ap_matrix"]


def test_devices_of_a_parent_that_no_bus_has_show_where_they_are():
    reading = parents_of(
        *(
            mdev(uuid, "mtty-2", path=f"/sys/devices/virtual/mtty/mtty/{uuid}")
            for uuid in (ONE, TWO)
        )
    )
    assert reading == type(reading)(
        (MdevParent("mtty", "mtty", mdevs=(Mdev(ONE, "mtty-2"), Mdev(TWO, "mtty-2"))),)
    )


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/sys/devices/pci0000:00/0000:06:00.0/x",
        "/sys/devices/virtual/../../x/y",
        "/sys/devices/virtual/x",
    ],
)
def test_device_whose_parent_should_be_listed_and_is_not_is_named(path):
    reading = parents_of(cuttable(GPU, T=1), mdev(ONE, "T", path=path))
    assert [one.mdevs for one in reading.value] == [()]
    assert reading.faults == (
        (
            f"device mdev_{ONE.replace('-', '_')}: its parent computer is not among the devices "
            "that can be cut"
        ),
    )


def test_two_devices_of_one_uuid_are_a_fault():
    reading = parents_of(
        cuttable(GPU, T=1),
        mdev(ONE, "T", GPU),
        replace(mdev(ONE, "T", GPU), name=f"mdev_{ONE.replace('-', '_')}"),
    )
    assert len(reading.value[0].mdevs) == 1
    assert reading.faults == (f"device mdev_{ONE.replace('-', '_')}: another is {ONE} as well",)


@pytest.mark.parametrize(
    ("device", "what"),
    [
        (
            replace(mdev(ONE, "T", GPU), name="mdev_1"),
            "device mdev_1: neither its name nor its XML has a uuid",
        ),
        (mdev(ONE, "", GPU), "it has no type"),
        (
            replace(CSS, xml=CSS.xml.replace("0xfffe", "0x1ffff")),
            "device css_0_0_fffe: devno: 0x1ffff is above 0xffff",
        ),
        (
            replace(CSS, xml=CSS.xml.replace("<availableInstances>1<", "<availableInstances>-1<")),
            "device css_0_0_fffe: availableInstances: -1 is negative",
        ),
        (
            replace(CSS, xml=CSS.xml.replace(" id='vfio_ccw-io'", "")),
            "device css_0_0_fffe: one of its types has no id",
        ),
        (
            replace(MATRIX, name="matrix"),
            "device matrix: its name on its bus is unknown",
        ),
        (replace(CSS, name="css_0_0_fffd", xml=CSS.xml), None),
    ],
    ids=("no-uuid", "no-type", "devno", "negative", "type-without-id", "no-bus", "fine"),
)
def test_what_cannot_be_understood_is_set_aside_and_the_rest_stays(device, what):
    reading = parents_of(cuttable(GPU, T=3), device)
    assert reading.value[-1] == MdevParent("0000:06:00.0", available={"T": 3}, numa_node=0)
    assert len(reading.value) == (1 if what else 2)
    assert len(reading.faults) == (1 if what else 0)
    assert all((what or "") in fault for fault in reading.faults)


def test_two_parents_of_one_name_are_a_fault():
    assert parents_of(CSS, replace(CSS, name="css_0_0_0000")).faults == (
        "device css_0_0_0000: another is 0.0.fffe as well",
    )
