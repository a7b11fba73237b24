import os
import uuid

import pytest

from agent.errors import DriverError
from agent.model.devices import PciAddress
from agent.model.facts import Domain, Origin
from agent.model.host_units import AssignableUnit, EncryptionFacts, Mdev, MdevParent
from agent.model.instance import Flavor, GuestCell, PlacedCell
from tests.unit.drivers.fakes import IDENTITY, record, root_tree, started


@pytest.fixture
def host_file(tmp_path):
    return tmp_path / "host.yaml"


def driver_of(host_file, text):
    host_file.write_text(text)
    return started("fake.file", host_file=str(host_file))


def facts_of(host_file, text):
    return driver_of(host_file, text).facts("cn1")


def test_cpus_and_memory_come_from_the_cells_unless_said_otherwise(host_file):
    cells = (
        "cells: [{id: 8, cpus: 8-9, memory_mib: 100}, {id: 0, cpus: 0-3, memory_mib: 50}, {id: 4, "
        "cpus: '', memory_mib: 7}]\n"
    )
    facts = facts_of(host_file, cells)
    assert [cell.id for cell in facts.numa.cells] == [0, 4, 8]
    assert facts.cpu.online == frozenset({0, 1, 2, 3, 8, 9})
    assert facts.memory_mib == 157
    facts = facts_of(host_file, cells + "memory_mib: 9000\ncpu: {online: '0-2,8', model: EPYC}\n")
    assert (facts.cpu.online, facts.cpu.model, facts.memory_mib) == (
        frozenset({0, 1, 2, 8}),
        "EPYC",
        9000,
    )
    assert facts.numa.cells[2].cpus == frozenset({8, 9})
    assert facts.numa.cells[2].siblings == (frozenset({8}),)


def test_virtual_functions_go_on_in_the_next_slot(host_file):
    text = (
        "pci: [{address: 0000:01:00.6, vendor_id: 15b3, product_id: 1017, virtual_functions: "
        "{count: 3, product_id: 1018}}]"
    )
    devices = facts_of(host_file, text).pci
    assert [str(device.address) for device in devices] == [
        "0000:01:00.6",
        "0000:01:00.7",
        "0000:01:01.0",
        "0000:01:01.1",
    ]


def test_mediated_devices_and_encryption(host_file):
    owner, device = "3d7b8f52-9d0c-4f5e-8c39-5e0b6a7c1a11", "8a1f2c60-53b7-4c1e-9a43-0f6f2f1f9d01"
    facts = facts_of(
        host_file,
        f"""
        mdev:
          - parent: 0000:3B:00.0
            types: {{nvidia-35: 14, nvidia-36: 0}}
            mdevs: [{{uuid: {device.upper()}, type: nvidia-35, owner: {owner}}}]
          - {{parent: mtty, types: {{mtty-2: 24}}, numa_node: 1}}
        encryption: {{sev: 15, sev_es: null}}
        incomplete: {{mdev: one parent could not be read, encryption: neither could that}}
        """,
    )
    assert facts.mdev == (
        MdevParent(
            "0000:3b:00.0",
            "pci",
            {"nvidia-35": 14, "nvidia-36": 0},
            (Mdev(device, "nvidia-35", owner),),
        ),
        MdevParent("mtty", "mtty", {"mtty-2": 24}, numa_node=1),
    )
    assert facts.encryption == EncryptionFacts({"sev": 15, "sev_es": None})
    assert not facts.complete("mdev") and not facts.complete("encryption")
    assert facts_of(host_file, "mdev: []").mdev == ()


GUESTS = """
    cells: [{id: 0, cpus: 0-7, memory_mib: 8192}, {id: 1, cpus: 8-15, memory_mib: 8192}]
    pci: [{address: 0000:18:00.0, vendor_id: 8086, product_id: 1528, virtual_functions: {count: 2, product_id: 1515}}]
    mdev:
      - parent: mtty
        types: {mtty-2: 24}
        mdevs: [{uuid: 8a1f2c60-53b7-4c1e-9a43-0f6f2f1f9d01, type: mtty-2}, {uuid: 8a1f2c60-53b7-4c1e-9a43-0f6f2f1f9d02, type: mtty-2}]
    guests:
      - {uuid: 3D7B8F52-9d0c-4f5e-8c39-5e0b6a7c1a11, memory_mib: 512}
      - uuid: 3d7b8f52-9d0c-4f5e-8c39-5e0b6a7c1a12
        name: instance-2
        state: paused
        cells:
          - {host_cell: 1, memory_mib: 1024, dedicated: 0-1, pins: {0: 8, 1: 9}, emulator: '10', page_size_kib: 2048}
          - {host_cell: 0, memory_mib: 512, shared: '2'}
        devices: ['0000:18:00.2']
        mdevs: [8A1F2C60-53b7-4c1e-9a43-0f6f2f1f9d01]
        origin:
          flavor: {id: '7', name: m1, vcpus: 3, memory_mb: 1536, root_gb: 5, extra_specs: {'hw:cpu_policy': mixed}}
          project_id: p
          user_id: u
          volume_backed: true
"""


def test_guests_with_their_cells_devices_and_origin(host_file):
    facts = facts_of(host_file, GUESTS)
    floats, pinned = facts.domains
    assert floats == Domain(
        "3d7b8f52-9d0c-4f5e-8c39-5e0b6a7c1a11", "3d7b8f52-9d0c-4f5e-8c39-5e0b6a7c1a11", 512
    )
    flavor = Flavor("7", "m1", 3, 1536, root_gb=5, extra_specs={"hw:cpu_policy": "mixed"})
    cells = (
        PlacedCell(
            GuestCell(frozenset(), frozenset({0, 1}), 1024), 1, 2048, {0: 8, 1: 9}, frozenset({10})
        ),
        PlacedCell(GuestCell(frozenset({2}), frozenset(), 512), 0),
    )
    device = PciAddress.parse("0000:18:00.2")
    assert pinned == Domain(
        "3d7b8f52-9d0c-4f5e-8c39-5e0b6a7c1a12",
        "instance-2",
        1536,
        3,
        "paused",
        cells,
        (device,),
        origin=Origin(flavor, "p", "u", True),
    )
    assert [one.owner for one in facts.mdev[0].mdevs] == [
        "3d7b8f52-9d0c-4f5e-8c39-5e0b6a7c1a12",
        None,
    ]


def test_a_guest_may_have_what_an_incomplete_section_does_not_show(host_file):
    guest = (
        "{uuid: 3d7b8f52-9d0c-4f5e-8c39-5e0b6a7c1a11, memory_mib: 1, devices: ['0000:18:00.2'], "
        "mdevs: [8a1f2c60-53b7-4c1e-9a43-0f6f2f1f9d01]}"
    )
    facts = facts_of(
        host_file, f"guests: [{guest}]\npci: []\nincomplete: {{pci: it hangs, mdev: it hangs}}"
    )
    assert (facts.domains[0].devices, facts.mdev) == ((PciAddress.parse("0000:18:00.2"),), None)


def test_units_are_on_the_node_on_a_cell_or_on_a_described_provider(host_file):
    text = """
        cells: [{id: 3, cpus: 0-1, memory_mib: 10}]
        providers: [{name: $NODE-card}]
        units:
          - {resource_class: CUSTOM_PMEM, identifier: ns_1, metadata: {path: /dev/pmem1, size: '4'}}
          - {resource_class: CUSTOM_PMEM, identifier: ns_0, provider: $NODE_NUMA3}
          - {resource_class: CUSTOM_PORT, identifier: '0', provider: $NODE-card}
          - {resource_class: CUSTOM_PMEM, identifier: ns_0, provider: $NODE}
        incomplete: {units: one namespace could not be read}
    """
    facts = facts_of(host_file, text)
    assert facts.units == (
        AssignableUnit("CUSTOM_PMEM", "ns_1", None, {"path": "/dev/pmem1", "size": "4"}),
        AssignableUnit("CUSTOM_PMEM", "ns_0", "_NUMA3"),
        AssignableUnit("CUSTOM_PORT", "0", "-card"),
        AssignableUnit("CUSTOM_PMEM", "ns_0"),
    )
    assert [unit.provider_name(facts.name) for unit in facts.units] == [
        "cn1",
        "cn1_NUMA3",
        "cn1-card",
        "cn1",
    ]
    assert not facts.complete("units")
    assert facts_of(host_file, "units: []").units == ()


def test_a_provider_may_be_described_before_its_parent_and_below_a_cell_of_the_agent(host_file):
    text = """
        cells: [{id: 3, cpus: 0-1, memory_mib: 10}]
        providers:
          - {name: $NODE-b, parent: $NODE-a}
          - {name: $NODE-a, parent: $NODE_NUMA3}
    """
    driver = driver_of(host_file, text)
    facts = driver.facts("cn1")
    tree = root_tree(facts)
    tree.new_child("cn1_NUMA3", "cn1")
    driver.shape(tree, facts, None)
    assert tree.name_of(tree.data("cn1-b").parent_uuid) == "cn1-a"
    assert tree.name_of(tree.data("cn1-a").parent_uuid) == "cn1_NUMA3"
    with pytest.raises(DriverError, match="cn1-a cannot be put below cn1_NUMA3"):
        driver.shape(root_tree(facts), facts, None)


def test_an_entry_adds_to_a_provider_that_the_agent_made(host_file):
    driver = driver_of(
        host_file,
        (
            "cells: [{id: 0, cpus: '0', memory_mib: 1}]\n"
            "providers: [{name: $NODE_NUMA0, inventories: {CUSTOM_X: {total: 1}}}]"
        ),
    )
    facts = driver.facts("cn1")
    tree = root_tree(facts)
    tree.new_child("cn1_NUMA0", "cn1")
    tree.update_inventory("cn1_NUMA0", {"PCPU": record(4)})
    driver.shape(tree, facts, None)
    assert tree.data("cn1_NUMA0").inventory == {"PCPU": record(4), "CUSTOM_X": record(1)}


def test_names_and_uuids_of_nodes(host_file):
    driver = driver_of(host_file, "name: other\nmemory_mib: 5")
    assert driver.nodes() == {IDENTITY: "other"}
    given = "7c5d1a10-6f4d-4a0e-8c63-5a8e0a2b9a11"
    driver = driver_of(
        host_file, f"nodes: [{{name: a}}, {{memory_mib: 6}}, {{name: b, uuid: {given.upper()}}}]"
    )
    assert driver.nodes() == {
        str(uuid.uuid5(uuid.UUID(IDENTITY), "a")): "a",
        IDENTITY: "cn1",
        given: "b",
    }
    assert driver.facts("cn1").memory_mib == 6


def test_an_edit_within_one_tick_of_the_clock_and_of_the_same_size_shows_too(host_file):
    driver = driver_of(host_file, "memory_mib: 5")
    before = host_file.stat()
    host_file.write_text("memory_mib: 6")
    os.utime(host_file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert driver.facts("cn1").memory_mib == 6


CARD = """
pci:
  - address: 0000:81:02.0
    vendor_id: 8086
    product_id: 1572
    netdev: ens1f0
    mac_address: 52:54:00:6D:90:02
    serial_number: MT1
    label: slot 3
    virtual_functions: {count: 1, product_id: 154c}
  - address: 0000:81:02.7
    vendor_id: 8086
    product_id: 154c
    physical_function: 0000:81:02.0
    netdev: ens1f0v7
    network_capabilities: [rx, tx]
    vdpa: true
    host_use: a router
"""


def test_all_that_can_be_known_of_a_card_can_be_said(host_file):
    card, first, listed = facts_of(host_file, CARD).pci
    assert (card.netdev, card.mac_address, card.serial_number, card.label) == (
        "ens1f0",
        "52:54:00:6d:90:02",
        "MT1",
        "slot 3",
    )
    assert (card.type, card.virtual_function_product_id) == ("type-PF", "154c")
    # What is said of the card is not said of the functions that are only counted.
    assert (first.type, first.netdev, first.serial_number, first.label) == (
        "type-VF",
        None,
        None,
        None,
    )
    assert (listed.type, listed.netdev, listed.network_capabilities, listed.host_use) == (
        "vdpa",
        "ens1f0v7",
        ("rx", "tx"),
        "a router",
    )
