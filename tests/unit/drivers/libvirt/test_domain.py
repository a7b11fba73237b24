"""Guests: their cells and pins, their devices, what nova wrote beside them; and those that cannot
be understood.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import agent.api
from agent.model.devices import PciAddress
from agent.model.facts import Cell, Domain, Origin, Topology
from agent.model.instance import Flavor, GuestCell, PlacedCell
from drivers.libvirt.domain import FunctionAliases, function_aliases, read_domains
from drivers.libvirt.raw_capabilities import read_node_devices
from tests.unit.drivers.libvirt.libvirt_answers import (
    DEVICES,
    MDEV,
    VF_0,
    VF_1,
    WIDE,
    domain,
    fixture,
)

HOST = Topology((Cell(0, frozenset(range(4)), 4096), Cell(8, frozenset(range(4, 8)), 8192)))
PINNED, FLOATING = (fixture(f"{name}_guest.xml") for name in ("pinned", "floating"))
UUID = "7b1d5f0e-2a52-4c36-9be0-0d5a9f6a9e03"


def guest(inside: str, **more) -> Domain:
    read = read_domains(
        [
            domain(
                "g",
                xml=f"<domain><memory>2097152</memory><vcpu>4</vcpu>{inside}</domain>",
                uuid=UUID,
            )
        ],
        more.get("aliases", FunctionAliases()),
        HOST,
    )
    assert read.faults == ()
    return read.value[0]


def pins(*of: str) -> str:
    return "".join(f"<vcpupin vcpu='{number}' cpuset='{cpus}'/>" for number, cpus in enumerate(of))


def test_pinned_guest_with_its_cells_devices_and_origin():
    read = read_domains(
        [domain("pinned_guest")], function_aliases(read_node_devices(DEVICES)), HOST
    )
    assert read.faults == ()
    uuid = "7b1d5f0e-2a52-4c36-9be0-0d5a9f6a9e01"
    assert read.value == (
        Domain(
            uuid,
            "pinned_guest",
            4096,
            4,
            cells=(
                PlacedCell(
                    GuestCell(frozenset(), frozenset({0, 1}), 2048),
                    0,
                    2048,
                    {0: 1, 1: 3},
                    frozenset({2}),
                ),
                PlacedCell(
                    GuestCell(frozenset(), frozenset({2, 3}), 2048), 8, 1048576, {2: 4, 3: 5}
                ),
            ),
            devices=(PciAddress.parse(VF_0), PciAddress.parse(WIDE)),
            origin=Origin(
                Flavor(
                    "5f6f2b0a-40b0-4b33-8d6a-3d2c8c5f1a77",
                    "pinned.large",
                    4,
                    4096,
                    20,
                    5,
                    512,
                    {"hw:cpu_policy": "dedicated", "hw:emulator_threads_policy": "isolate"},
                ),
                "d1e2f3a4b5c64d7e8f9a0b1c2d3e4f5a",
                "a0b4a1b2c3d44e5f8a9b0c1d2e3f4a5b",
            ),
        ),
    )
    assert read.owners == {MDEV: uuid}


def test_floating_guest_of_an_older_nova():
    [one] = read_domains(
        [domain("floating_guest", "paused")], function_aliases(read_node_devices(DEVICES)), HOST
    ).value
    assert (one.state, one.memory_mib, one.vcpus, one.cells) == ("paused", 512, 2, ())
    assert one.devices == (PciAddress.parse(VF_1),)
    assert one.origin == Origin(
        Flavor("m1.tiny", "m1.tiny", 2, 512, 1),
        "admin-project",
        "admin-id",
        volume_backed=True,
        specs_known=False,
    )


# --- cells ----------------------------------------------------------------------------------------


def test_shared_cell_has_no_pins():
    one = guest(
        "<cpu><numa><cell id='0' cpus='0-3' memory='2097152'/></numa></cpu><numatune><memnode "
        f"cellid='0' nodeset='8'/></numatune><cputune>{pins(*['4-7'] * 4)}<emulatorpin "
        "cpuset='4-7'/></cputune>"
    )
    assert one.cells == (PlacedCell(GuestCell(frozenset(range(4)), frozenset(), 2048), 8),)
    assert not one.pinned


def test_mixed_cell_has_pins_for_some_of_its_cpus():
    one = guest(
        "<cpu><numa><cell id='0' cpus='0-3' memory='2' unit='GiB'/></numa></cpu><numatune><memory "
        f"nodeset='0'/></numatune><cputune>{pins('0-1', '0-1', '2', '3')}</cputune>"
    )
    assert one.cells == (
        PlacedCell(GuestCell(frozenset({0, 1}), frozenset({2, 3}), 2048), 0, None, {2: 2, 3: 3}),
    )


def test_one_cpu_that_all_share_is_no_pin():
    one = guest(
        "<cpu><numa><cell id='0' cpus='0-3' "
        f"memory='2048'/></numa></cpu><cputune>{pins(*['1'] * 4)}</cputune>"
    )
    assert one.cells == (PlacedCell(GuestCell(frozenset(range(4)), frozenset(), 2), 0),)


def test_cell_that_is_bound_nowhere_floats():
    one = guest(
        "<cpu><numa><cell id='0' cpus='0-1' memory='1048576'/><cell id='1' cpus='2-3' "
        "memory='1048576'/></numa></cpu><numatune><memory nodeset='0,8'/><memnode cellid='1' "
        f"nodeset='8'/></numatune><cputune>{pins('0-7')}</cputune>"
    )
    assert [cell.host_cell for cell in one.cells] == [8]


def test_cell_without_cpus_is_where_its_memory_is():
    one = guest(
        "<cpu><numa><cell id='0' memory='1048576'/></numa></cpu><numatune><memnode cellid='0' "
        "nodeset='8'/></numatune>"
    )
    assert one.cells == (PlacedCell(GuestCell(frozenset(), frozenset(), 1024), 8),)


def test_guest_without_cells_that_is_pinned_has_one_on_each_cell_of_the_host():
    one = guest(
        "<memoryBacking><hugepages><page size='2' "
        f"unit='MiB'/></hugepages></memoryBacking><cputune>{pins('4', '1', '5', '99')}</cputune>"
    )
    assert one.cells == (
        PlacedCell(GuestCell(frozenset(), frozenset({1}), 1024), 0, 2048, {1: 1}),
        PlacedCell(GuestCell(frozenset(), frozenset({0, 2}), 1024), 8, 2048, {0: 4, 2: 5}),
    )


def test_pages_of_a_size_that_nobody_tells_are_not_told():
    one = guest(
        "<memoryBacking><hugepages/></memoryBacking><cpu><numa><cell id='0' "
        "memory='2'/></numa></cpu><numatune><memory nodeset='0'/></numatune>"
    )
    assert one.cells[0].page_size_kib is None


@pytest.mark.parametrize(
    ("emulator", "specs", "reserved"),
    [
        ("2", "", {2}),
        ("2", "<n:extraSpec name='hw:emulator_threads_policy'>share</n:extraSpec>", set()),
        ("2-3", "", set()),
        ("0", "", set()),
        ("7", "", {7}),
    ],
    ids=("alone", "shared", "several", "a-guests", "on-another-cell"),
)
def test_emulator_has_a_cpu_for_itself_if_no_cpu_of_the_guest_runs_there(emulator, specs, reserved):
    owner = "<n:owner><n:user uuid='u'/><n:project uuid='p'/></n:owner>"
    flavor = (
        "<n:flavor "
        f"name='f'><n:memory>1</n:memory><n:vcpus>1</n:vcpus><n:extraSpecs>{specs}</n:extraSpecs></n:flavor>"
    )
    one = guest(
        "<metadata><n:instance "
        f"xmlns:n='http://openstack.org/xmlns/libvirt/nova/1.1'>{flavor}{owner}</n:instance></metadata>"
        f"<cputune>{pins('0', '1')}<emulatorpin cpuset='{emulator}'/></cputune>"
    )
    assert [cell.reserved for cell in one.cells] == [reserved]


# --- devices --------------------------------------------------------------------------------------


def test_devices_by_address_interface_and_disk():
    one = guest(
        "<devices><hostdev type='pci'><source><address domain='0' bus='0x06' slot='0' "
        "function='0'/></source></hostdev>"
        "<hostdev type='usb'><source><address bus='1' device='2'/></source></hostdev>"
        "<disk type='nvme'><source type='pci' namespace='1'><address domain='0' bus='0x05' "
        "slot='0' function='0'/></source></disk>"
        "<disk type='file'><source file='/x'/></disk><interface type='hostdev'/></devices>"
    )
    assert [str(address) for address in one.devices] == ["0000:05:00.0", "0000:06:00.0"]


def test_interface_that_the_host_does_not_have_any_more_is_no_device():
    assert (
        guest(
            "<devices><interface type='vdpa'><source "
            "dev='/dev/vhost-vdpa-9'/></interface></devices>"
        ).devices
        == ()
    )


def test_mediated_device_belongs_to_the_guest_that_runs_not_to_one_that_is_off():
    source = (
        "<devices><hostdev mode='subsystem' type='mdev'><source><address "
        f"uuid='{MDEV.upper()}'/></source></hostdev></devices>"
    )
    xml = f"<domain><memory>1024</memory>{source}</domain>"
    off, on = (
        domain("off", "stopped", xml, UUID),
        domain("on", "running", xml, UUID.replace("7b1d", "0a1d")),
    )
    for order in ((off, on), (on, off)):
        assert read_domains(order, FunctionAliases(), HOST).owners == {MDEV: on.uuid}
    assert read_domains([off], FunctionAliases(), HOST).owners == {MDEV: off.uuid}


# --- metadata -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "metadata",
    [
        "",
        "<metadata/>",
        "<metadata><instance/></metadata>",
        "<metadata><n:other xmlns:n='http://openstack.org/xmlns/libvirt/nova/1.1'/></metadata>",
    ],
    ids=("none", "empty", "no-namespace", "another"),
)
def test_guest_that_nova_did_not_make_has_no_origin(metadata):
    assert guest(metadata).origin is None


@pytest.mark.parametrize("missing", ["flavor", "owner", "user", "project"])
def test_origin_of_which_a_part_was_not_written_is_none(missing):
    xml = PINNED.replace(f"<nova:{missing}", "<nova:gone").replace(
        f"</nova:{missing}>", "</nova:gone>"
    )
    assert read_domains([domain("g", xml=xml)], FunctionAliases(), HOST).value[0].origin is None


def test_extra_specs_that_an_older_nova_did_not_write_are_unknown():
    specs = re.search("<nova:extraSpecs.*</nova:extraSpecs>|<nova:extraSpecs/>", PINNED, re.DOTALL)
    for text, known in (
        (PINNED, True),
        (PINNED.replace(specs[0], "<nova:extraSpecs/>"), True),
        (PINNED.replace(specs[0], ""), False),
    ):
        origin = read_domains([domain("g", xml=text)], FunctionAliases(), HOST).value[0].origin
        assert origin.specs_known == known


@pytest.mark.parametrize(
    ("root", "volume_backed"),
    [
        ('<nova:root type="image" uuid=""/>', True),
        ('<nova:root type="volume" uuid="x"/>', True),
        ('<nova:root type="image" uuid="x"/>', False),
        ("", True),
    ],
)
def test_root_disk_of_an_image_is_no_volume(root, volume_backed):
    xml = PINNED.replace(
        '<nova:root type="image" uuid="1b2c3d4e-5f60-4718-92a3-b4c5d6e7f809"/>', root
    )
    assert (
        read_domains([domain("g", xml=xml)], FunctionAliases(), HOST).value[0].origin.volume_backed
        is volume_backed
    )


VOLUME = "<serial>6a1c9f2e-0b3d-4c5e-8f70-112233445566</serial>"


@pytest.mark.parametrize(
    ("disks", "volume_backed"),
    [
        ("<disk device='disk'><target dev='vda'/></disk>", False),
        (f"<disk><target dev='vda'/></disk><disk>{VOLUME}<target dev='vdb'/></disk>", False),
        (f"<disk type='network'>{VOLUME}<target dev='vda'/></disk>", True),
        # Listed after an ephemeral disk.
        (f"<disk><target dev='vdb'/></disk><disk>{VOLUME}<target dev='vda'/></disk>", True),
        (f"<disk device='cdrom'>{VOLUME}<target dev='hda'/></disk>", False),
        ("<disk><serial>made by hand</serial><target dev='vda'/></disk>", False),
        ("<disk/>", False),
    ],
)
def test_a_root_volume_beside_the_name_of_an_image_is_a_volume(disks, volume_backed):
    xml = PINNED.replace("<devices>", f"<devices>{disks}")
    assert disks in xml
    (found,) = read_domains([domain("g", xml=xml)], FunctionAliases(), HOST).value
    assert found.origin.volume_backed is volume_backed


# --- what cannot be understood --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("</domain>", "", "malformed XML"),
        ("<memory unit='KiB'>4194304</memory>", "", "no <memory> in <domain>"),
        ("<memory unit='KiB'>4194304<", "<memory unit='KiB'>-1<", "memory: -1 is negative"),
        ("<memory unit='KiB'>", "<memory unit='stone'>", "memory: 'stone' is no unit"),
        ("<vcpu placement='static'>4<", "<vcpu>four<", "vcpu: 'four' is not a number"),
        ("vcpu='0'", "vcpu='x'", "vcpupin: 'x' is not a number"),
        ("vcpu='0' cpuset='1'", "vcpu='0' cpuset=''", "vcpupin: the list is empty"),
        ("<emulatorpin cpuset='2'/>", "<emulatorpin/>", "emulatorpin: the list is empty"),
        ("cellid='0'", "cellid=''", "numatune: '' is not a number"),
        ("mode='strict' nodeset='8'", "nodeset='eight'", "numatune: 'eight' is neither"),
        ("<cell id='1'", "<cell id='0'", "cell 0: listed twice"),
        ("cpus='2-3'", "cpus='1-3'", "cell 1: listed twice, or another has some of its CPUs"),
        ("memory='2097152'", "memory='2 GiB'", "cell 0: '2 GiB' is not a number"),
        ("<page size='2048'", "<page size=''", "hugepages: '' is not a number"),
        ("bus='0x3b'", "bus='0x3bb'", "host device: bus: 0x3bb is above 0xff"),
        ("uuid='c6e54b2d", "uuid='zzz", "of a mediated device is no uuid"),
        (
            "<memory unit='KiB'>4194304<",
            f"<memory unit='TiB'>{1 << 11}<",
            "memory: 2048 is more than 2047",
        ),
    ],
)
def test_guest_that_cannot_be_understood_is_set_aside_and_the_others_stay(old, new, what):
    assert old in PINNED
    read = read_domains(
        [domain("pinned", xml=PINNED.replace(old, new)), domain("floating", xml=FLOATING)],
        FunctionAliases(),
        HOST,
    )
    assert [one.name for one in read.value] == ["floating"]
    assert len(read.faults) == 1
    assert read.faults[0].startswith("guest pinned: ")
    assert what in read.faults[0]


SPEC = '<nova:extraSpec name="{}">{}</nova:extraSpec>'
SCHEMA = yaml.safe_load((Path(agent.api.__file__).parent / "openapi.yaml").read_text())[
    "components"
]["schemas"]
AMOUNTS = {
    "vcpus": "vcpus",
    "memory": "memory_mb",
    "disk": "root_gb",
    "ephemeral": "ephemeral_gb",
    "swap": "swap_mb",
}


@pytest.mark.parametrize("element", AMOUNTS)
def test_the_flavor_that_nova_wrote_has_the_bounds_that_the_local_api_has(element):
    bounds = SCHEMA["NewFlavor"]["properties"][AMOUNTS[element]]

    def read(amount):
        xml = re.sub(f"<nova:{element}>[0-9]+<", f"<nova:{element}>{amount}<", PINNED)
        (one,) = read_domains([domain("g", xml=xml)], FunctionAliases(), HOST).value
        return one

    for amount in (bounds["minimum"], bounds["maximum"]):
        assert getattr(read(amount).origin.flavor, AMOUNTS[element]) == amount
    for amount in (bounds["minimum"] - 1, bounds["maximum"] + 1, "half", "9" * 30):
        one = read(amount)
        assert (one.origin, one.vcpus) == (None, 4)
        assert one.unreadable_origin.startswith("guest g: flavor in the metadata: ")


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("<nova:vcpus>4</nova:vcpus>", "", "flavor in the metadata: no <"),
        ('name="pinned.large"', "", "flavor in the metadata: it has no name"),
        ('name="pinned.large"', f'name="{"x" * 256}"', "256 characters, more than 255"),
        ('name="pinned.large"', 'name="a&#10;b"', "has control characters"),
        ("<nova:project uuid=", "<nova:project id=", "project in the metadata: it has no name"),
        ("</nova:extraSpecs>", SPEC.format("a", "x" * 4097), "4097 characters, more than 4096"),
        (
            "</nova:extraSpecs>",
            "".join(SPEC.format(one, 1) for one in range(501)),
            "extra specs, more than 500",
        ),
    ],
)
def test_metadata_that_cannot_be_understood_leave_the_guest_as_its_domain_shows_it(old, new, what):
    assert old in PINNED
    end = old if old.startswith("</") else ""
    xml = PINNED.replace(old, new + end)
    read = read_domains([domain("pinned", xml=xml)], FunctionAliases(), HOST)
    assert read.faults == ()
    (one,) = read.value
    assert what in one.unreadable_origin
    (right,) = read_domains([domain("pinned", xml=PINNED)], FunctionAliases(), HOST).value
    assert replace(one, unreadable_origin=None) == replace(right, origin=None)


def test_guests_of_one_uuid_or_none_are_faults():
    read = read_domains(
        [domain("a", xml=FLOATING), domain("b", xml=FLOATING), domain("c", xml=FLOATING, uuid="c")],
        FunctionAliases(),
        None,
    )
    assert [one.name for one in read.value] == ["a"]
    assert read.faults == (
        "guest b: another has its uuid 7b1d5f0e-2a52-4c36-9be0-0d5a9f6a9e02",
        "guest c: 'c' is no uuid",
    )


def test_without_a_topology_only_what_the_guest_itself_says_is_known():
    [one] = read_domains([domain("pinned_guest")], FunctionAliases(), None).value
    assert [cell.host_cell for cell in one.cells] == [0, 8]
    assert one.cells[0].reserved == {2}


@pytest.mark.parametrize(
    ("tpm", "properties"),
    [
        (
            "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>",
            {"hw_tpm_version": "2.0", "hw_tpm_model": "tpm-crb"},
        ),
        ("<tpm model='tpm-spapr'><backend type='emulator'/></tpm>", {}),
        ("<tpm model='tpm-tis'><backend type='passthrough'/></tpm>", {}),
        ("", {}),
    ],
)
def test_an_emulated_tpm_is_what_an_image_would_ask_for(tpm, properties):
    xml = fixture("floating_guest.xml").replace("<devices>", f"<devices>{tpm}")
    (found,) = read_domains([domain("g", xml=xml)], FunctionAliases(), HOST).value
    assert found.image_properties == properties


def test_the_function_behind_an_interface_is_unknown_while_devices_are():
    more = "<interface type='direct'><source dev='ens4f0v1' mode='passthrough'/></interface>"
    xml = fixture("floating_guest.xml").replace("<devices>", f"<devices>{more}")
    read = read_domains([domain("g", xml=xml)], FunctionAliases(known=False), HOST)
    assert read.value == ()
    assert "the device of its interface 'ens4f0v1' is unknown" in read.faults[0]
