import os
import re

import pytest

from agent.errors import ConfigErrors
from tests.unit.drivers.fakes import started


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
