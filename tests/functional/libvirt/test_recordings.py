"""The real libvirtd over recordings of machines: the driver ``libvirt`` gives the tree that the
driver ``host`` gives for the same.

One recording is of our own making and always there; those of real machines are extras.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.driver.interface import Driver, HostContext
from agent.model.facts import Cell, HostFacts
from agent.numa.host_policy import HostPolicy
from agent.pci.settings import PciSettings
from agent.tree.policy import MdevPolicy, MdevType, Policy
from drivers.host import HostDriver
from drivers.libvirt import LibvirtDriver
from tests.support.agent import AgentUnderTest
from tests.support.host_driver import host_conf
from tests.support.libvirt_host import IDENTITY, libvirt_conf, node_of, started
from tests.support.libvirtd import Libvirtd
from tests.support.placement import PlacementServer
from tests.support.recorded_sysfs import smt_host
from tests.support.recordings import RECORDINGS, enable_virtual_functions, sysfs_root

pytestmark = pytest.mark.long

OWN = "of our own making"
GPU, MDEV = "0000:06:00.0", "8a1f2c60-53b7-4c1e-9a43-0f6f2f1f9d01"
WITH_FUNCTIONS = "32intel64-2p8co2t+8ve with four functions"
KNIGHTS_LANDING, POWER9, OFFLINE = (
    "64intel64-fakeKNL-SNC4-hybrid",
    "nvidiagpunumanodes",
    "offline-cpu0-node0",
)


# So many devices are offered in the trees, the last ones, where functions are.
OFFERED = 8

# What differs, and why; by recording, as the names of figures. A difference that is gone, or
# another than this, fails as well. Four things differ in all of them and have no figure: a
# function's driver, which libvirt looks for in /sys/bus/pci/drivers, and the recordings do not have
# that; its label, which libvirt does not read; its interface, which libvirt finds by
# /sys/class/net; how many huge pages are free, which the capabilities do not tell.
DIFFERENCES: Mapping[str, Mapping[str, str]] = {
    KNIGHTS_LANDING: {
        f"cell {cell} siblings": (
            "the recording has only maps of threads, and libvirt 9.0 reads only lists, so that "
            "each thread is a core to it"
        )
        for cell in range(4)
    },
    POWER9: {
        **{
            f"cell {cell} cpus": (
                "libvirt leaves out CPUs that do not run: the rest of the kernel's list, which the "
                "host driver takes"
            )
            for cell in (0, 8)
        },
        "incomplete": (
            "the recording has six device folders without vendor and product: the host driver "
            "names them, libvirt does not list them"
        ),
    },
    OFFLINE: {
        "cell 1 cpus": "libvirt leaves out CPUs that do not run",
    },
}


def recording(name: str, folder: Path) -> Path:
    """The folder that stands for its /sys."""
    if name == OWN:
        tree = smt_host(folder / "sys")
        tree.pci(GPU, "10de:1db4", class_code="0x030200", cell=8)
        tree.mediated(GPU, {"nvidia-35": 14, "nvidia-36": 7}, {MDEV: "nvidia-35"})
        return tree.for_libvirt().root
    root = sysfs_root(name.partition(" ")[0], folder)
    if name == WITH_FUNCTIONS:
        enable_virtual_functions(root, "0000:60:00.0", 4, "37cd")
    return root


@contextmanager
def both(root: Path) -> Iterator[tuple[LibvirtDriver, HostDriver]]:
    """Both drivers over the same recording, their nodes called the same."""
    server = Libvirtd(root)
    try:
        server.start()
        with started(server.uri) as libvirt:
            host = HostDriver(host_conf(root))
            host.start(HostContext(node_of(libvirt), IDENTITY, Path("state")))
            yield libvirt, host
    finally:
        server.remove()


def figures(facts: HostFacts, *, devices: bool) -> dict[str, Any]:
    """What facts tell, but for what always differs."""
    found: dict[str, Any] = {
        "online": facts.cpu.online,
        "memory": facts.memory_mib,
        "disk": facts.disk_gib,
        "cells": [one.id for one in facts.numa.cells],
    }
    for cell in facts.numa.cells:
        found |= {f"cell {cell.id} {name}": value for name, value in _cell(cell).items()}
    if devices:
        found |= {
            "incomplete": set(facts.incomplete),
            "devices": [str(one.address) for one in facts.pci],
            "mdev": facts.mdev or (),
        }
        for one in facts.pci:
            found[f"device {one.address}"] = (
                one.vendor_id,
                one.product_id,
                one.class_code,
                one.numa_node,
                one.type,
                one.physical_function,
                one.virtual_functions,
                one.max_virtual_functions,
                one.has_vdpa,
            )
    return found


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "cpus": cell.cpus,
        "memory": cell.memory_mib,
        "pages": [(pool.size_kib, pool.total) for pool in cell.pages],
        "distances": dict(cell.distances),
        "siblings": cell.siblings,
        "sockets": cell.sockets,
    }


def tree_of(driver: Driver, folder: Path, facts: HostFacts) -> dict[str, Any]:
    """The tree of an audit, by names: parent, inventories and, below the root, traits; half of each
    cell's CPUs are dedicated.
    """
    conf = libvirt_conf("none")
    # The card that is offered in parts cannot be offered whole too.
    whole = [one for one in facts.pci if not one.virtual_functions and str(one.address) != GPU]
    offered = [str(one.address) for one in whole][-OFFERED:]
    conf.set_override("device_spec", [json.dumps({"address": one}) for one in offered], "pci")
    conf.set_override("report_in_placement", True, "pci")
    running = [cell.cpus & facts.cpu.online for cell in facts.numa.cells]
    dedicated = frozenset(cpu for cpus in running for cpu in sorted(cpus)[::2])
    mdev = MdevPolicy((MdevType("nvidia-35"),))
    policy = Policy(
        layout="nested", host=HostPolicy(facts.cpu.online - dedicated, dedicated), mdev=mdev
    )
    placement = PlacementServer()
    try:
        agent = AgentUnderTest(
            placement, folder, driver, policy=policy, pci=PciSettings.from_options(conf)
        )
        report = agent.once()
        assert report.state == "changed", report.errors
        providers = placement.dump()["providers"]
    finally:
        placement.close()
    return {
        one["name"]: (providers[one["parent"]]["name"], one["inventories"], one["traits"])
        if one["parent"]
        else one["inventories"]
        for one in providers.values()
    }


# Those of which something differs, one with devices, and one of our own making.
CHOSEN = [
    OWN,
    *(name for name in RECORDINGS if name in DIFFERENCES),
    *([WITH_FUNCTIONS] if RECORDINGS else []),
]


@pytest.mark.parametrize("name", CHOSEN)
def test_the_tree_is_the_one_that_the_host_driver_gives_for_the_same_recording(name, tmp_path):
    root = recording(name, tmp_path)
    devices = (root / "bus" / "pci").is_dir()
    with both(root) as (libvirt, host):
        told, ours = libvirt.facts(node_of(libvirt)), host.facts(node_of(libvirt))
        a, b = figures(told, devices=devices), figures(ours, devices=devices)
        assert {key for key in a.keys() | b.keys() if a.get(key) != b.get(key)} == set(
            DIFFERENCES.get(name, {})
        )
        # Of facts that are not complete no first tree is made.
        if devices and not ours.incomplete:
            tree = tree_of(libvirt, tmp_path / "libvirt", ours)
            assert tree == tree_of(host, tmp_path / "host", ours)
            if name == OWN:
                _, inventories, _ = tree[f"{node_of(libvirt)}_pci_0000_06_00_0"]
                assert inventories["VGPU"]["total"] == 15
