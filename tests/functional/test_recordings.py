"""The host driver over recordings of real machines, against what two others read from the same:
``facts.py`` and libvirtd.

The recordings are not part of this tree: ``$SHARED``, or ``../shared`` beside the checkout. One
recording of our own making is always there.
"""

import json
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from agent.model.facts import Cell, HostFacts, parse_cpu_list
from tests.support.host_driver import CONTEXT, started
from tests.support.recorded_sysfs import smt_host
from tests.support.recordings import (
    HOSTS,
    RECORDINGS,
    enable_virtual_functions,
    of_each,
    sysfs_root,
)

pytestmark = pytest.mark.long


@dataclass(frozen=True)
class Difference:
    """One thing that we tell otherwise than the source, and why."""

    told: Any
    ours: Any
    because: str


ONLY_MAPS = (
    "the recording has thread_siblings maps and no thread_siblings_list; libvirt 9.0 reads only "
    "the list and takes each thread for a core, but the maps name the four threads of a core, as "
    "does the machine: Knights Landing has four, 64 CPUs are 16 core ids"
)

# What differs, by recording and figure. A difference that is gone, or another than this, fails as
# well.
DIFFERENCES: Mapping[str, Mapping[str, Difference]] = {
    "nvidiagpunumanodes": {
        "sysfs pci devices": Difference(
            8,
            0,
            "the recording has six device folders, each with only 'class' and 'local_cpus', and "
            "facts.py counts those two names as devices too; a device without vendor and product "
            "cannot be told apart, so the six are set aside and named",
        ),
    },
    "offline-cpu0-node0": {
        "real-caps online": Difference(
            [5, 7, 9, 11, 13, 15, 17, 19],
            list(range(4, 21)),
            "libvirt lists CPUs by cell only; the kernel of the recording runs 4-20, and the even "
            "ones are of node 0, whose folder was taken out of the recording",
        ),
    },
    "64intel64-fakeKNL-SNC4-hybrid": {
        **{
            f"real-caps cell {cell} cores": Difference((16, 1), (4, 4), ONLY_MAPS)
            for cell in range(4)
        },
        **{
            f"real-caps cell {cell} siblings": Difference(
                [[cpu + core] for cpu in (0, 16, 32, 48) for core in range(4 * cell, 4 * cell + 4)],
                [[core, core + 16, core + 32, core + 48] for core in range(4 * cell, 4 * cell + 4)],
                ONLY_MAPS,
            )
            for cell in range(4)
        },
    },
}


@pytest.fixture(scope="module", params=of_each(RECORDINGS))
def recording(request, tmp_path_factory) -> tuple[str, HostFacts]:
    root = sysfs_root(request.param, tmp_path_factory.mktemp("recording"))
    return request.param, started(root).facts(CONTEXT.name)


def entries() -> Mapping[str, Any]:
    return json.loads((HOSTS / "facts.json").read_text())


def assert_equal_but_for_explained(
    name: str, source: str, told: Mapping[str, Any], ours: Mapping[str, Any]
) -> None:
    explained = {
        key: (one.told, one.ours)
        for key, one in DIFFERENCES.get(name, {}).items()
        if key.startswith(f"{source} ")
    }
    assert set(told) == set(ours)
    found = {f"{source} {key}": (told[key], ours[key]) for key in told if told[key] != ours[key]}
    assert found == explained


def as_facts_py_tells_it(facts: HostFacts) -> dict[str, Any]:
    return {
        "cells": [cell.id for cell in facts.numa.cells],
        "memory": facts.memory_mib,
        "pci devices": len(facts.pci),
        "pfs": {
            str(device.address): device.max_virtual_functions
            for device in facts.pci
            if device.is_physical_function
        },
        **{f"cell {cell.id}": cell_as_facts_py_tells_it(cell) for cell in facts.numa.cells},
    }


def cell_as_facts_py_tells_it(cell: Cell) -> dict[str, Any]:
    return {
        "id": cell.id,
        "memory_mb": cell.memory_mib,
        "cpus": sorted(cell.cpus),
        "hugepages": {str(pool.size_kib): pool.total for pool in cell.pages},
        "distances": {str(other): distance for other, distance in cell.distances.items()},
    }


def test_cells_memory_pages_distances_and_pci_equal_an_independent_reading(recording):
    name, facts = recording
    entry = entries()[f"sysfs/{name}.tar.bz2"]
    told = {
        "cells": [cell["id"] for cell in entry["per_cell"]],
        "memory": entry["total_memory_mb"],
        "pci devices": entry["pci_devices"],
        "pfs": entry["pfs"],
        **{f"cell {cell['id']}": cell for cell in entry["per_cell"]},
    }
    assert_equal_but_for_explained(name, "sysfs", told, as_facts_py_tells_it(facts))


def as_libvirtd_tells_it(name: str) -> dict[str, Any]:
    """The entry of facts.json, and the siblings themselves, which it only counts."""
    told: dict[str, Any] = {"online": []}
    for cell in entries()[f"real-caps/{name}.xml"]["per_cell"]:
        told["online"] += cell["cpus"]
        told[f"cell {cell['id']} online"] = cell["cpus"]
        told[f"cell {cell['id']} cores"] = (cell["sibling_sets"], cell["threads"])
        told[f"cell {cell['id']} sockets"] = cell["sockets"]
        told[f"cell {cell['id']} distances"] = cell["distances"]
    told["online"].sort()
    for element in (
        ElementTree.parse(HOSTS / "real-caps" / f"{name}.xml")
        .getroot()
        .iterfind("./host/topology/cells/cell")
    ):
        siblings = {parse_cpu_list(cpu.attrib["siblings"]) for cpu in element.iterfind("cpus/cpu")}
        told[f"cell {element.attrib['id']} siblings"] = sorted(map(sorted, siblings))
    return told


def as_we_tell_it(facts: HostFacts) -> dict[str, Any]:
    ours: dict[str, Any] = {"online": sorted(facts.cpu.online)}
    for cell in facts.numa.cells:
        ours[f"cell {cell.id} online"] = sorted(cell.cpus & facts.cpu.online)
        ours[f"cell {cell.id} cores"] = (
            len(cell.siblings),
            max((len(core) for core in cell.siblings), default=0),
        )
        ours[f"cell {cell.id} sockets"] = sorted(cell.sockets)
        ours[f"cell {cell.id} distances"] = cell_as_facts_py_tells_it(cell)["distances"]
        ours[f"cell {cell.id} siblings"] = [sorted(core) for core in cell.siblings]
    return ours


def test_online_cpus_siblings_and_sockets_equal_those_of_a_real_libvirtd(recording):
    name, facts = recording
    assert_equal_but_for_explained(
        name, "real-caps", as_libvirtd_tells_it(name), as_we_tell_it(facts)
    )


def test_only_what_a_recording_lacks_is_incomplete(recording):
    name, facts = recording
    assert list(facts.incomplete) == (["pci"] if name == "nvidiagpunumanodes" else [])


def as_nodedev_tells_it(facts: HostFacts) -> dict[str, Any]:
    products = Counter(f"0x{device.vendor_id}/0x{device.product_id}" for device in facts.pci)
    return {
        "pci": len(facts.pci),
        "pfs": {
            str(device.address): [device.max_virtual_functions, len(device.virtual_functions)]
            for device in facts.pci
            if device.is_physical_function
        },
        "vfs": sum(device.is_virtual_function for device in facts.pci),
        "numa_nodes": sorted(
            {device.numa_node for device in facts.pci if device.numa_node is not None}
        ),
        "by_product": products,
    }


def test_devices_equal_those_that_a_real_libvirtd_lists(recording):
    name, facts = recording
    told = entries().get(f"real-nodedev/{name}.xml")
    assert (told is None) == (len(facts.pci) == 0)
    assert told is None or {
        key: told[key] for key in as_nodedev_tells_it(facts)
    } == as_nodedev_tells_it(facts)


@pytest.mark.parametrize(
    "name", of_each(name for name in RECORDINGS if name.startswith("32intel64-"))
)
def test_enabled_virtual_functions_equal_those_that_a_real_libvirtd_lists(name, tmp_path):
    root = sysfs_root(name, tmp_path)
    enable_virtual_functions(root, "0000:60:00.0", 4, "37cd")
    facts = started(root).facts(CONTEXT.name)
    told = entries()["real-nodedev/32intel64-4vfs-synthesised.xml"]
    assert {key: told[key] for key in as_nodedev_tells_it(facts)} == as_nodedev_tells_it(facts)
    assert {
        str(device.physical_function) for device in facts.pci if device.is_virtual_function
    } == {"0000:60:00.0"}


def test_recording_of_our_own_making_is_read_whole(tmp_path):
    facts = started(smt_host(tmp_path / "sys").root).facts(CONTEXT.name)
    assert as_facts_py_tells_it(facts) == {
        "cells": [0, 8, 9, 250],
        "memory": 14335,
        "pci devices": 5,
        "pfs": {"0000:3b:00.0": 4},
        "cell 0": {
            "id": 0,
            "memory_mb": 4095,
            "cpus": [0, 1, 2, 3],
            "hugepages": {"2048": 512, "1048576": 1},
            "distances": {"0": 10, "8": 20, "9": 30, "250": 80},
        },
        "cell 8": {
            "id": 8,
            "memory_mb": 8192,
            "cpus": [4, 5, 6, 7],
            "hugepages": {"2048": 0, "1048576": 0},
            "distances": {"0": 20, "8": 10, "9": 30, "250": 80},
        },
        "cell 9": {
            "id": 9,
            "memory_mb": 0,
            "cpus": [8],
            "hugepages": {},
            "distances": {"0": 30, "8": 30, "9": 10, "250": 80},
        },
        "cell 250": {
            "id": 250,
            "memory_mb": 2048,
            "cpus": [],
            "hugepages": {},
            "distances": {"0": 80, "8": 80, "9": 80, "250": 10},
        },
    }
    assert facts.incomplete == {}
