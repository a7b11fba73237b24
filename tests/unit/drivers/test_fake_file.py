import os
import re
import threading
import uuid

import pytest

from agent.driver.interface import NAMESPACE, NOVA_SPELLINGS, ShapesTree, available, canonical_name
from agent.errors import ConfigErrors, DriverError, NotReady
from agent.model.devices import AssignableUnit, EncryptionFacts, Mdev, MdevParent, PciAddress
from agent.model.facts import Domain, HostFacts, Origin
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


# --- more ---


def errors_of(tmp_path, content):
    host_file = tmp_path / "host.yaml"
    host_file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigErrors) as caught:
        started("fake.file", host_file=str(host_file))
    assert all(error.remedy for error in caught.value.errors)
    assert all("\n" not in error.message for error in caught.value.errors)
    # The lines are enough here: what has a line has a column too.
    return [
        re.sub(r"^(\d+):\d+:", r"\1:", error.message.removeprefix(f"{host_file}:"))
        for error in caught.value.errors
    ]


EVERYTHING_WRONG = """\
name: "a\\nb"
memory_mib: lots
disk_gb: 5
memory_mib: 5
cells:
  - {id: 0, cpus: 0-3, memory_mib: 100}
  - {id: 0, cpus: 3-5x, memory_mib: 100}
  - {id: 1, cpus: 3-5, memory_mib: -1, node: 3}
pci:
  - {address: 0000:18:00.0, vendor_id: 8086, product_id: 15z8}
  - {address: 0000:18:00.1, vendor_id: 8086}
  - {address: 0000:19:00.0, vendor_id: 8086, product_id: 1528, max_virtual_functions: 1, virtual_functions: {count: 2, product_id: 1515}}
traits: [lower]
providers:
  - name: $NODE
    inventories:
      VCPU: {total: 4, reserved: 5}
"""


def test_all_errors_come_at_once_in_the_order_of_the_file_with_lines_and_paths(tmp_path):
    assert errors_of(tmp_path, EVERYTHING_WRONG) == [
        "1: name: 'a\\nb' has a control character",
        "2: memory_mib: is 'lots', not a whole number",
        "3: disk_gb: is an unknown key",
        "4: memory_mib: the key is here twice, first in line 2",
        "7: cells[1].cpus: is '3-5x': '3-5x' is neither a CPU number nor a range A-B",
        "7: cells[1].id: the cell 0 is here twice",
        "8: cells[2].memory_mib: is -1",
        "8: cells[2].node: is an unknown key",
        "10: pci[0].product_id: is '15z8'",
        "11: pci[1]: lacks product_id",
        "12: pci[2].max_virtual_functions: is 1, with 2 virtual functions described",
        "13: traits[0]: is 'lower'",
        "17: providers[0].inventories.VCPU: VCPU: reserved 5 is above total 4",
    ]


def test_an_unknown_key_comes_with_the_one_that_was_meant(tmp_path):
    with pytest.raises(ConfigErrors) as caught:
        (tmp_path / "host.yaml").write_text("disk_gb: 5")
        started("fake.file", host_file=str(tmp_path / "host.yaml"))
    assert caught.value.remedy == "did you mean disk_gib?"
    assert caught.value.errors[0].data == {
        "file": str(tmp_path / "host.yaml"),
        "line": 1,
        "column": 1,
        "path": "disk_gb",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1: is empty, not a mapping"),
        ("- a", "1: is a list, not a mapping"),
        ("a: [1, 2", "1: expected ',' or ']', but got '<stream end>'"),
        ("memory_mib: 1\n---\nmemory_mib: 2", "2: but found another document"),
        ("name: *x", "1: aliases are not allowed here: write the value out"),
        (
            "name: !!python/object:os.system x",
            "1: the tag tag:yaml.org,2002:python/object:os.system is not allowed here",
        ),
        ("pci: " + "[" * 100, "1: is nested deeper than 16 levels"),
        (b"name: a\nmemory_mib: \xff", "2: is not UTF-8"),
        ("name: a\x00", "1: unacceptable character #x0000: special characters are not allowed"),
        ('name: "\\ud800"', "1: name: '\\ud800' has a control character"),
        ("{[a]: b}", "1: a key is a list or a mapping"),
        (
            "memory_mib: 1" + "0" * 5000,
            "1: memory_mib: is '1" + "0" * 59 + "…', not a whole number",
        ),
        ("memory_mib: true", "1: memory_mib: is true, not a whole number"),
        ("name: 7", "1: name: is 7, not text"),
        ("name: " + "n" * 201, "1: name: is '" + "n" * 60 + "…'"),
        ("uuid: me", "1: uuid: is 'me'"),
        ("cpu: {model: x}", "1: cpu: lacks online, and there are no cells to take the CPUs from"),
        ("cpu: {online: ''}\ncells: []", "2: cells: is empty"),
        (
            "cpu: {online: 0-9}\ncells: [{id: 0, cpus: 0-7, memory_mib: 1}]",
            "1: cpu.online: the CPUs 8-9 belong to no cell",
        ),
        (
            "cells: [{id: 0, cpus: 0-1, memory_mib: 1, siblings: ['0,1', '1']}]",
            "1: cells[0].siblings: a CPU is in two cores",
        ),
        (
            "cells: [{id: 0, cpus: 0-2, memory_mib: 1, siblings: ['0,1']}]",
            "1: cells[0].siblings: the CPUs 2 are in the cell or in its cores, but not in both",
        ),
        (
            "cells: [{id: 0, cpus: '', memory_mib: 3, pages: [{size_kib: 2048, total: 2}]}]",
            "1: cells[0].pages: the pages need 4 MiB, of 3 MiB",
        ),
        (
            "cells: [{id: 0, cpus: '', memory_mib: 3, pages: [{size_kib: 4, total: 2, free: 3}]}]",
            "1: cells[0].pages[0].free: 3 pages free, of 2",
        ),
        (
            "cells: [{id: 0, cpus: '', memory_mib: 3, distances: {1: 20}}]",
            "1: cells[0].distances.1: there is no cell 1",
        ),
        (
            "cells: [{id: 0, cpus: '', memory_mib: 3, distances: {0: 20}}]",
            "1: cells[0].distances.0: the distance of the cell to itself is 20",
        ),
        ("incomplete: {ram: x}", "1: incomplete.ram: cannot be a key here"),
        ("capabilities: {CUSTOM_X: true}", "1: capabilities.CUSTOM_X: cannot be a key here"),
        (
            "capabilities: {COMPUTE_X: yes}",
            "1: capabilities.COMPUTE_X: is 'yes', not true or false",
        ),
        ("nodes: []", "1: nodes: is empty"),
        ("nodes: [{name: a}]\nmemory_mib: 5", "2: memory_mib: is an unknown key"),
        ("nodes: [{name: a, capabilities: {}}]", "1: nodes[0].capabilities: is not allowed here"),
        ("nodes:\n- {name: a}\n- {name: a}", "3: nodes[1].name: two nodes are called 'a'"),
        (
            "nodes: [{name: a}, {name: b, providers: [{name: a}]}]",
            "1: nodes[1].providers: 'a' is the name of a provider of the node a too",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path, text, message):
    assert errors_of(tmp_path, text) == [message]


DEVICE = "vendor_id: 8086, product_id: 1528"


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        (f"[{{address: 0000:01:00.8, {DEVICE}}}]", "1: pci[0].address: is '0000:01:00.8'"),
        (
            f"[{{address: 0000:01:00.0, {DEVICE}}}, {{address: '0000:01:00.0', {DEVICE}}}]",
            "1: pci[1].address: the device 0000:01:00.0 is here twice",
        ),
        (
            f"[{{address: 0000:01:00.0, {DEVICE}, numa_node: 1}}]",
            "1: pci[0].numa_node: there is no cell 1",
        ),
        (
            f"[{{address: 0000:01:00.1, {DEVICE}, physical_function: 0000:01:00.0}}]",
            (
                "1: pci[0].physical_function: 0000:01:00.0 is not a device that can have virtual "
                "functions"
            ),
        ),
        (
            (
                f"[{{address: 0000:01:1f.6, {DEVICE}, virtual_functions: {{count: 2, product_id: "
                "1515}}]"
            ),
            "1: pci[0].virtual_functions: bus 01 has no room for 2 functions after 0000:01:1f.6",
        ),
    ],
)
def test_devices_that_cannot_be(tmp_path, devices, message):
    assert errors_of(tmp_path, f"pci: {devices}\ncells: [{{id: 0, cpus: '', memory_mib: 1}}]") == [
        message
    ]


UNIT = "resource_class: CUSTOM_PMEM, identifier: ns_0"


@pytest.mark.parametrize(
    ("units", "message"),
    [
        ("[{identifier: ns_0}]", "1: units[0]: lacks resource_class"),
        ("[{resource_class: CUSTOM_PMEM}]", "1: units[0]: lacks identifier"),
        ("[{resource_class: pmem, identifier: ns_0}]", "1: units[0].resource_class: is 'pmem'"),
        (
            "[{resource_class: VCPU, identifier: '0'}]",
            "1: units[0].resource_class: VCPU is no class of units: the agent counts it by itself",
        ),
        ("[{resource_class: CUSTOM_PMEM, identifier: ''}]", "1: units[0].identifier: is ''"),
        (
            '[{resource_class: CUSTOM_PMEM, identifier: "ns\\x1b"}]',
            "1: units[0].identifier: 'ns\\x1b' has a control character",
        ),
        (
            '[{resource_class: CUSTOM_PMEM, identifier: ns, metadata: {a: "b\\n"}}]',
            "1: units[0].metadata.a: 'b\\n' has a control character",
        ),
        (
            "[{resource_class: CUSTOM_PMEM, identifier: ns, metadata: {a: 1}}]",
            "1: units[0].metadata.a: is 1, not text",
        ),
        (
            f"[{{{UNIT}}}, {{{UNIT}, provider: $NODE}}]",
            "1: units[1].identifier: the unit 'ns_0' of CUSTOM_PMEM is here twice",
        ),
        (f"[{{{UNIT}, provider: card}}]", "1: units[0].provider: is 'card'"),
        (
            f"[{{{UNIT}, provider: $NODE_NUMA1}}]",
            "1: units[0].provider: there is no provider 'cn1_NUMA1'",
        ),
        (f"[{{{UNIT}, size: 4}}]", "1: units[0].size: is an unknown key"),
        (
            f"[{{{UNIT}, provider: $NODE_NUMA0}}, {{{UNIT}, provider: $NODE-x}}, {{{UNIT}}}, {{}}]",
            "1: units[3]: lacks resource_class",
        ),
    ],
)
def test_units_that_cannot_be(tmp_path, units, message):
    text = (
        f"units: {units}\ncells: [{{id: 0, cpus: '', memory_mib: 1}}]\nproviders: [{{name: cn1-x}}]"
    )
    assert errors_of(tmp_path, text)[0] == message


def test_units_of_a_provider_that_cannot_be_read_are_not_held_against_it(tmp_path):
    text = (
        "units: [{resource_class: CUSTOM_PMEM, identifier: ns_0, provider: $NODE-x}]\nproviders: "
        "[{nam: $NODE-x}]"
    )
    assert errors_of(tmp_path, text) == [
        "2: providers[0]: lacks name",
        "2: providers[0].nam: is an unknown key",
    ]


@pytest.mark.parametrize(
    ("providers", "message"),
    [
        ("[{name: x, parent: y}]", "1: providers[0].parent: there is no provider 'y'"),
        (
            "[{name: x, parent: $NODE_NUMA0}]",
            "1: providers[0].parent: there is no provider 'cn1_NUMA0'",
        ),
        (
            "[{name: x, parent: y}, {name: y, parent: x}]",
            "1: providers[0].parent: the providers y, x are each other's parents",
        ),
        ("[{name: x}, {name: x}]", "1: providers[1].name: 'x' is here twice"),
        ("[{name: $NODE, parent: $NODE}]", "1: providers[0].parent: the node itself has no parent"),
        (
            "[{name: x, inventories: {vcpu: {total: 1}}}]",
            "1: providers[0].inventories.vcpu: cannot be a key here",
        ),
        (
            "[{name: x, inventories: {A: {total: 0, max_unit: 1}}}]",
            "1: providers[0].inventories.A: A: total is 0, not a whole number from 1 to 2147483647",
        ),
        (
            "[{name: x, inventories: {VCPU: {reserved: 0}}}]",
            "1: providers[0].inventories.VCPU: lacks total",
        ),
        ("[{name: x, aggregates: [a]}]", "1: providers[0].aggregates[0]: is 'a'"),
        ("[{name: x, traits: [A, A]}]", "1: providers[0].traits: has an item twice"),
    ],
)
def test_providers_that_cannot_be(tmp_path, providers, message):
    assert errors_of(tmp_path, f"providers: {providers}") == [message]


def test_a_name_that_is_too_long_with_the_node_s_name_in_it(tmp_path):
    text = f"name: {'n' * 10}\nproviders: [{{name: $NODE{'x' * 191}}}]"
    assert errors_of(tmp_path, text) == [
        f"2: providers[0].name: '{'n' * 10}{'x' * 50}…' has 201 characters"
    ]


def test_a_broken_item_does_not_make_others_look_wrong(tmp_path):
    text = """\
cells: [{id: 0, cpus: 0-1, memory_mib: 1, distances: {1: 20}}, {id: one, cpus: 2-3, memory_mib: 1}]
cpu: {online: 0-3}
pci:
  - {address: 0000:01:00.0, vendor_id: x, product_id: 1528}
  - {address: 0000:01:00.1, vendor_id: 8086, product_id: 1515, numa_node: 1, physical_function: 0000:01:00.0}
providers: [{name: a, parent: $NODE_NUMA1}, {name: b, parent: c}, {name: 5}]
"""
    assert errors_of(tmp_path, text) == [
        "1: cells[1].id: is 'one', not a whole number",
        "4: pci[0].vendor_id: is 'x'",
        "6: providers[2].name: is 5, not text",
    ]


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    host_file = tmp_path / "host.yaml"
    with host_file.open("wb") as stream:
        stream.truncate(2**30)
    with pytest.raises(ConfigErrors, match="is larger than 1048576 bytes"):
        started("fake.file", host_file=str(host_file))


@pytest.mark.timeout(120)
def test_a_pipe_a_folder_and_a_missing_file_are_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, message in (
        ("pipe", "is not a regular file"),
        (".", "directory"),
        ("missing", "cannot be read: No such file or directory"),
    ):
        with pytest.raises(ConfigErrors, match=message):
            started("fake.file", host_file=str(tmp_path / name))


DEVICE = "uuid: 8a1f2c60-53b7-4c1e-9a43-0f6f2f1f9d01, type: T"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mdev: {}", "1: mdev: is a mapping, not a list"),
        ("mdev: [{parent: 06:00.0, types: {}}]", "1: mdev[0].parent: is '06:00.0'"),
        ("mdev: [{parent: mtty}]", "1: mdev[0]: lacks types"),
        (
            "mdev: [{parent: mtty, types: {T: many}}]",
            "1: mdev[0].types.T: is 'many', not a whole number",
        ),
        (
            "mdev: [{parent: mtty, types: {T: 1}, mdevs: [{uuid: x, type: T}]}]",
            "1: mdev[0].mdevs[0].uuid: is 'x'",
        ),
        (
            f"mdev: [{{parent: mtty, types: {{U: 1}}, mdevs: [{{{DEVICE}}}]}}]",
            "1: mdev[0].mdevs[0].type: the parent has no type 'T'",
        ),
        (
            (
                f"mdev: [{{parent: a, types: {{T: 1}}, mdevs: [{{{DEVICE}}}]}}, {{parent: b, "
                f"types: {{T: 1}}, mdevs: [{{{DEVICE}}}]}}]"
            ),
            (
                "1: mdev[1].mdevs[0].uuid: the device 8a1f2c60-53b7-4c1e-9a43-0f6f2f1f9d01 is here "
                "twice"
            ),
        ),
        (
            "mdev: [{parent: '0000:0a:00.0', types: {}}, {parent: '0000:0A:00.0', types: {}}]",
            "1: mdev[1].parent: the parent 0000:0a:00.0 is here twice",
        ),
        (
            (
                "mdev: [{parent: mtty, types: {}, numa_node: 3}]\ncells: [{id: 0, cpus: '', "
                "memory_mib: 1}]"
            ),
            "1: mdev[0].numa_node: there is no cell 3",
        ),
        ("encryption: {sgx: 1}", "1: encryption.sgx: cannot be a key here"),
        ("encryption: {sev: yes}", "1: encryption.sev: is 'yes', not a whole number or null"),
    ],
)
def test_mediated_devices_and_encryption_that_cannot_be(tmp_path, text, message):
    (error,) = errors_of(tmp_path, text)
    assert error.startswith(message)


GUESTS_WRONG = """\
cells:
  - {id: 0, cpus: 0-3, memory_mib: 100}
pci: []
mdev:
  - {parent: mtty, types: {T: 1}, mdevs: [{uuid: 8a1f2c60-53b7-4c1e-9a43-0f6f2f1f9d01, type: T}]}
guests:
  - uuid: 3d7b8f52-9d0c-4f5e-8c39-5e0b6a7c1a11
    memory_mib: 101
    vcpus: 2
    cells:
      - {host_cell: 0, memory_mib: 50, shared: '0', dedicated: 0-1, pins: {0: 9}}
      - {host_cell: 1, memory_mib: 50, shared: 1-2}
      - {host_cell: 0, memory_mib: 5, dedicated: 3-4, pins: {3: 1, 4: 1}, emulator: two}
    devices: ['0000:18:00.0', '0000:18:00.0']
    mdevs: [8a1f2c60-53b7-4c1e-9a43-0f6f2f1f9d01, 8a1f2c60-53b7-4c1e-9a43-0f6f2f1f9d02]
  - uuid: 3d7b8f52-9d0c-4f5e-8c39-5e0b6a7c1a11
    mdevs: []
  - {uuid: 3d7b8f52-9d0c-4f5e-8c39-5e0b6a7c1a12, memory_mib: 1, mdevs: [8a1f2c60-53b7-4c1e-9a43-0f6f2f1f9d01]}
  - {name: x, memory_mib: 1, origin: {flavor: {id: 7, name: m1, vcpus: 1}, project_id: p}, state: dead}
"""


GUESTS_TOLD = [
    "8: guests[0].memory_mib: is 101, and the guest's cells have 105",
    "9: guests[0].vcpus: is 2, and the guest's cells have 6",
    "11: guests[0].cells[0].dedicated: the guest's CPUs 0 are shared too",
    "11: guests[0].cells[0].pins: the guest's CPUs 1 are dedicated or pinned, but not both",
    "11: guests[0].cells[0].pins: the CPUs 9 are not of the host's cell 0",
    "12: guests[0].cells[1]: the guest's CPUs 1 are in another cell of it too",
    "12: guests[0].cells[1].host_cell: there is no cell 1",
    "13: guests[0].cells[2].emulator: is 'two': 'two' is neither a CPU number nor a range A-B",
    "13: guests[0].cells[2].pins: the guest has the host's CPUs 1 twice",
    "14: guests[0].devices[0]: there is no device 0000:18:00.0",
    "14: guests[0].devices[1]: the device 0000:18:00.0 is here twice",
    "14: guests[0].devices[1]: there is no device 0000:18:00.0",
    "15: guests[0].mdevs[1]: there is no mediated device 8a1f2c60-53b7-4c1e-9a43-0f6f2f1f9d02",
    "16: guests[1]: lacks memory_mib, and there are no cells to take it from",
    "16: guests[1].uuid: the guest 3d7b8f52-9d0c-4f5e-8c39-5e0b6a7c1a11 is here twice",
    "18: guests[2].mdevs[0]: the device belongs to the guest 3d7b8f52-9d0c-4f5e-8c39-5e0b6a7c1a11",
    "19: guests[3].state: is 'dead'",
    "19: guests[3].origin.flavor.id: is 7, not text",
    "19: guests[3].origin.flavor: lacks memory_mb",
    "19: guests[3].origin: lacks user_id",
    "19: guests[3]: lacks uuid",
]


def test_all_that_is_wrong_with_guests_comes_at_once(tmp_path):
    assert errors_of(tmp_path, GUESTS_WRONG) == GUESTS_TOLD


# --- more ---


def what_happens(driver, calls):
    told = []
    for _ in range(calls):
        for call in (driver.nodes, lambda: driver.facts("cn1")):
            try:
                answer = call()
            except NotReady as error:
                told.append(error.message)
            else:
                told.append(
                    answer
                    if isinstance(answer, dict)
                    else {**answer.incomplete, "cpu_facts": answer.cpu, "pci_facts": answer.pci}
                )
    return told


def chaos(seed, probability=0.5):
    return started("fake.chaos", chaos_seed=seed, chaos_probability=probability)


def test_the_same_seed_does_the_same():
    one, other = chaos(7), chaos(7)
    assert what_happens(one, 40) == what_happens(other, 40)
    assert one.disturbed == other.disturbed
    assert set(one.disturbed) == {"delay", "not-ready", "partial"}


def test_threads_do_not_change_what_happens():
    alone, shared = chaos(7), chaos(7)
    what_happens(alone, 40)
    threads = [threading.Thread(target=what_happens, args=(shared, 10)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shared.disturbed == alone.disturbed


def test_what_is_wrong_in_a_partial_answer_is_flagged_and_the_rest_is_right():
    driver, numa = chaos(3, 1.0), started("fake.numa").facts("cn1")
    fields = {
        "cpu": "cpu",
        "memory": "memory_mib",
        "disk": "disk_gib",
        "numa": "numa",
        "pci": "pci",
    }
    seen = set()
    for _ in range(60):
        try:
            facts = driver.facts("cn1")
        except NotReady:
            continue
        for section, field in fields.items():
            right = getattr(facts, field) == getattr(numa, field)
            assert right == facts.complete(section), section
            if not right:
                seen.add((section, getattr(facts, field) is None))
    assert seen == {(section, missing) for section in fields for missing in (True, False)}


# --- more ---


SIZES = {
    "fake": (1000, 800_000, 600_000),
    "fake.small": (2, 8192, 1028),
    "fake.medium": (10, 8192, 1028),
    "fake.medium_nested": (10, 8192, 1028),
    "fake.predictable_uuid": (2, 8192, 1028),
    "fake.local_identity": (1000, 800_000, 600_000),
    "fake.multi_node": (1000, 800_000, 600_000),
    "fake.pci": (2, 8192, 1028),
    "fake.same_host_migrate": (10, 8192, 1028),
    "fake.bfv_rescue": (10, 8192, 1028),
    "fake.power_event": (2, 8192, 1028),
    "fake.ephemeral_encryption": (10, 8192, 1028),
    "fake.ephemeral_encryption_luks": (10, 8192, 1028),
    "fake.ephemeral_encryption_plain": (10, 8192, 1028),
    "fake.caching": (1000, 800_000, 600_000),
    "fake.numa": (64, 262_144, 4096),
}
OTHERS = {"fake.baremetal", "fake.chaos", "fake.file"}
FAKES = sorted(name for name in available() if name.startswith("fake"))


def test_every_fake_of_the_catalogue_is_an_entry_point():
    assert set(FAKES) == SIZES.keys() | OTHERS


@pytest.mark.parametrize("spelling", sorted(NOVA_SPELLINGS))
def test_every_spelling_of_nova_means_an_installed_fake_or_a_driver_of_another_extra(spelling):
    assert canonical_name(spelling) in {*FAKES, "libvirt", "ironic"}, NAMESPACE


@pytest.mark.parametrize("name", SIZES)
def test_a_host_has_the_size_of_the_catalogue(name):
    facts = started(name).facts("cn1")
    cpus, memory_mib, disk_gib = SIZES[name]
    assert facts.cpu.online == frozenset(range(cpus))
    assert (facts.cpu.architecture, facts.cpu.model, facts.hypervisor_type) == (
        "x86_64",
        "Nehalem",
        "fake",
    )
    assert (facts.memory_mib, facts.disk_gib) == (memory_mib, disk_gib)
    assert not facts.incomplete


def test_a_predictable_uuid_follows_from_the_name():
    assert started("fake.predictable_uuid").nodes() == {
        str(uuid.uuid5(uuid.NAMESPACE_DNS, "cn1")): "cn1"
    }


def test_pci_devices_have_valid_ids_and_know_their_relations():
    devices = {str(device.address): device for device in started("fake.pci").facts("cn1").pci}
    assert set(devices) == {
        f"0000:0{bus}:00.{function}" for bus in (1, 2, 3) for function in (0, 1)
    }
    for bus in (1, 2, 3):
        card, function = devices[f"0000:0{bus}:00.0"], devices[f"0000:0{bus}:00.1"]
        assert card.is_physical_function
        assert card.virtual_functions == (function.address,)
        assert function.physical_function == card.address
    for device in devices.values():
        assert device.numa_node == 0
        assert all(
            len(text) == 4 and int(text, 16) for text in (device.vendor_id, device.product_id)
        )


@pytest.mark.parametrize(
    ("name", "traits"),
    [
        ("fake", set()),
        ("fake.power_event", set()),
        ("fake.caching", set()),
        ("fake.same_host_migrate", {"COMPUTE_SAME_HOST_COLD_MIGRATE"}),
        ("fake.bfv_rescue", {"COMPUTE_RESCUE_BFV"}),
        ("fake.ephemeral_encryption", {"COMPUTE_EPHEMERAL_ENCRYPTION"}),
        (
            "fake.ephemeral_encryption_luks",
            {"COMPUTE_EPHEMERAL_ENCRYPTION", "COMPUTE_EPHEMERAL_ENCRYPTION_LUKS"},
        ),
        (
            "fake.ephemeral_encryption_plain",
            {"COMPUTE_EPHEMERAL_ENCRYPTION", "COMPUTE_EPHEMERAL_ENCRYPTION_PLAIN"},
        ),
    ],
)
def test_a_variant_has_its_capability_and_takes_away_those_of_the_others(name, traits):
    import os_traits

    plain, varied = started("fake").capabilities_as_traits(), started(name).capabilities_as_traits()
    assert varied.keys() == plain.keys() <= set(os_traits.get_traits("COMPUTE_"))
    assert {trait for trait in varied if varied[trait] != plain[trait]} == traits
    assert all(varied[trait] for trait in traits)


def test_only_hosts_with_providers_of_their_own_shape_the_tree():
    assert not isinstance(started("fake"), ShapesTree)
    with pytest.raises(DriverError, match="do not come from a fake driver"):
        started("fake.medium_nested").shape(
            root_tree(HostFacts("cn1", 0.0, "x")), HostFacts("cn1", 0.0, "x"), None
        )
