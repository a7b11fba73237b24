"""Mediated devices and what can be cut into them, from node devices."""

from dataclasses import replace

import pytest

from agent.model.host_units import Mdev, MdevParent
from agent.model.names import ConsumerUuid
from drivers.libvirt.pci import read_mdevs
from drivers.libvirt.raw_capabilities import DeviceAnswer, read_node_devices
from tests.support.libvirt_answers import GPU, cuttable, mdev

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


def read(*devices: DeviceAnswer, owners=None):
    return read_mdevs(read_node_devices(devices), owners or {})


def test_each_device_names_the_guest_that_has_it():
    [parent] = read(
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
    [parent] = read(cuttable(GPU, T=1), old, new).value
    assert {one.uuid for one in parent.mdevs} == {ONE, TWO}


def test_parents_that_are_no_pci_functions_are_called_as_the_kernel_calls_them():
    reading = read(CSS, MATRIX)
    assert reading.faults == ()
    assert [(one.bus, one.name, dict(one.available)) for one in reading.value] == [
        ("css", "0.0.fffe", {"vfio_ccw-io": 1}),
        ("ap", "matrix", {"vfio_ap-passthrough": 65536}),
    ]
    assert [one.provider_name("L") for one in reading.value] == ["L_css_0_0_fffe", "L_ap_matrix"]


def test_devices_of_a_parent_that_no_bus_has_show_where_they_are():
    reading = read(
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
    reading = read(cuttable(GPU, T=1), mdev(ONE, "T", path=path))
    assert [one.mdevs for one in reading.value] == [()]
    assert reading.faults == (
        (
            f"device mdev_{ONE.replace('-', '_')}: its parent computer is not among the devices "
            "that can be cut"
        ),
    )


def test_two_devices_of_one_uuid_are_a_fault():
    reading = read(
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
    reading = read(cuttable(GPU, T=3), device)
    assert reading.value[-1] == MdevParent("0000:06:00.0", available={"T": 3}, numa_node=0)
    assert len(reading.value) == (1 if what else 2)
    assert len(reading.faults) == (1 if what else 0)
    assert all((what or "") in fault for fault in reading.faults)


def test_two_parents_of_one_name_are_a_fault():
    assert read(CSS, replace(CSS, name="css_0_0_0000")).faults == (
        "device css_0_0_0000: another is 0.0.fffe as well",
    )
