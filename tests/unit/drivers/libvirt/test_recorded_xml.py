"""XML of real hosts, against the facts that another reader made of it (``facts.json``); it is not
part of this tree.
"""

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from typing import Any

import pytest

from agent.model.devices import PciDevice
from drivers.libvirt.capabilities import read_capabilities
from drivers.libvirt.domain_capabilities import Sev, read_emulators
from drivers.libvirt.pci import read_mdevs, read_pci
from drivers.libvirt.raw_capabilities import DeviceAnswer, read_node_devices
from drivers.libvirt.traits import emulator_traits
from tests.support.recordings import ABSENT, HOSTS, of_each

FACTS: Mapping[str, Mapping[str, Any]] = (
    json.loads((HOSTS / "facts.json").read_text()) if (HOSTS / "facts.json").exists() else {}
)


def of_kind(kind: str) -> Any:
    return pytest.mark.parametrize(
        "name", of_each(name for name, told in FACTS.items() if told["kind"] == kind)
    )


def text(name: str) -> str:
    return (HOSTS / name).read_text(encoding="utf-8")


def devices(name: str) -> list[DeviceAnswer]:
    root = ElementTree.fromstring(text(name))
    return [
        DeviceAnswer(
            one.findtext("name"),
            one.findtext("parent"),
            ElementTree.tostring(one, encoding="unicode"),
        )
        for one in (root.findall("device") if root.tag == "devices" else [root])
    ]


@of_kind("capabilities")
def test_capabilities(name):
    told = FACTS[name]
    online = frozenset(cpu for cell in told["per_cell"] for cpu in cell["cpus"])
    found = read_capabilities(text(name), online)
    assert found.architecture == "x86_64"
    topology = found.topology.value
    assert (found.topology.faults, topology.memory_mib, topology.smt) == (
        (),
        told["total_memory_mb"],
        told["smt"] > 1,
    )
    for cell, expected in zip(topology.cells, told["per_cell"], strict=True):
        assert (cell.id, sorted(cell.cpus), cell.memory_mib) == (
            expected["id"],
            expected["cpus"],
            expected["memory_mb"],
        )
        assert {str(pool.size_kib): pool.total for pool in cell.pages} == expected["hugepages"]
        assert {str(other): distance for other, distance in cell.distances.items()} == expected[
            "distances"
        ]
        assert sorted(cell.sockets) == expected["sockets"]
        # An older libvirt tells no siblings: then each CPU is a core.
        assert len(cell.siblings) == (expected["sibling_sets"] or len(cell.cpus))
        assert max(map(len, cell.siblings), default=0) == (
            expected["threads"] or min(len(cell.cpus), 1)
        )


@of_kind("devices")
def test_all_node_devices_of_a_host(name):
    told = FACTS[name]
    reading = read_pci(read_node_devices(devices(name)), {})
    assert (reading.faults, len(reading.value)) == ((), told["pci"])
    physical = {
        str(one.address): [one.max_virtual_functions, len(one.virtual_functions)]
        for one in reading.value
        if one.is_physical_function
    }
    assert physical == told.get("pfs", {})
    assert sum(one.is_virtual_function for one in reading.value) == told["vfs"]
    assert sorted({one.numa_node for one in reading.value} - {None}) == told["numa_nodes"]
    assert {f"0x{one.vendor_id}/0x{one.product_id}" for one in reading.value} == set(
        told["by_product"]
    )


@of_kind("device")
def test_one_node_device(name):
    told = FACTS[name]
    nodes = read_node_devices(devices(name))
    assert [one.kind for one in nodes.by_name.values()] == told["caps"]
    functions, parents = read_pci(nodes, {}), read_mdevs(nodes, {})
    assert functions.faults == ()
    assert [_told(one) for one in functions.value] == (
        [_expected(told)] if "pci" in told["caps"] else []
    )
    assert {
        key: count for one in parents.value or () for key, count in one.available.items()
    } == told.get("mdev_types", {})


def _told(device: PciDevice) -> tuple[Any, ...]:
    return (
        str(device.address),
        device.vendor_id,
        device.product_id,
        device.class_code,
        device.numa_node,
        device.is_physical_function,
        device.max_virtual_functions,
        [str(one) for one in device.virtual_functions],
        None if device.physical_function is None else str(device.physical_function),
        device.serial_number,
    )


def _expected(told: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        told["address"],
        told["vendor"].removeprefix("0x"),
        told["product"].removeprefix("0x"),
        int(told["class"], 16) if told.get("class") else None,
        told["numa_node"],
        told.get("is_pf", False),
        told.get("max_vfs", 0),
        told.get("vfs", []),
        told.get("pf"),
        told.get("vpd_serial"),
    )


@of_kind("domcaps")
def test_domain_capabilities(name):
    told = FACTS[name]
    reading = read_emulators({(told["arch"], told["machine"]): text(name)})
    [emulator] = reading.value
    assert (reading.faults, emulator.architecture) == ((), told["arch"])
    # The table of facts says nothing of the lists; these are by eye.
    encrypted = "amdsev" in name
    assert emulator.sev == (Sev(59, 450) if encrypted else None)
    assert emulator.launch_security == (frozenset({"sev", "sev-snp"}) if encrypted else frozenset())
    traits = emulator_traits(reading.value, 10_000_000, 7_002_000, vtpm=True)
    prefix = "COMPUTE_STORAGE_BUS_"
    assert {
        trait.removeprefix(prefix)
        for trait, has in traits.items()
        if has and trait.startswith(prefix)
    } == {"IDE", "FDC", "SCSI", "VIRTIO", "USB", "SATA"}
    assert traits["COMPUTE_SECURITY_TPM_2_0"]
    assert traits["COMPUTE_SECURITY_TPM_1_2"] is False


def test_recorded_mediated_device_without_a_parent_is_named():
    name = "libvirt/mdev_3627463d_b7f0_4fea_b468_f1da537d301b.xml"
    if name not in FACTS:
        pytest.skip(ABSENT)
    reading = read_mdevs(read_node_devices(devices(name)), {})
    assert reading.value == ()
    assert reading.faults[0].endswith(
        "its parent computer is not among the devices that can be cut"
    )
