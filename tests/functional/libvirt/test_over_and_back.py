"""A host of nova-compute with guests, devices and pinned CPUs is taken over, laid out anew, and given
back; nova's own tracker and driver for libvirt are before and after on the same libvirtd, and
afterwards they change nothing.

``NOVA_PYTHON`` names a Python that has nova 34 and the binding of libvirt; without it this is left
out.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import backends
from tests.support.http_placement import HttpPlacement
from tests.support.libvirt_host import Operator, guest_uuid
from tests.support.libvirtd import Libvirtd
from tests.support.novas_tracker import NOVA, NovaTracker
from tests.support.recorded_sysfs import smt_host
from tests.support.recordings import ABSENT, RECORDINGS, enable_virtual_functions, sysfs_root
from tests.support.system import AgentHere

pytestmark = pytest.mark.long

ROOT = "5f9c2a34-7d1e-4a8b-9c46-00000000c005"
OWN, REAL = "of our own making", "32intel64-2p8co2t+8ve"
GPU = "0000:06:00.0"
SHARED, DEDICATED = {"VCPU": 1, "MEMORY_MB": 16}, {"PCPU": 1, "MEMORY_MB": 16}


@dataclass(frozen=True)
class Machine:
    """A recording: its CPU sets, a CPU of the dedicated ones with its cell, another cell with
    shared CPUs, and a device.
    """

    shared: str
    dedicated: str
    pin: int
    pin_cell: int
    shared_cell: int
    device: str
    spec: Mapping[str, str]


MACHINES = {
    OWN: Machine("0-2,5", "3,4", 4, 8, 0, GPU, {"vendor_id": "10de", "product_id": "1db4"}),
    REAL: Machine(
        "0-3,8-11",
        "4-7,12-15",
        12,
        1,
        0,
        "0000:60:02.1",
        {"vendor_id": "8086", "product_id": "37cd"},
    ),
}


def cells(cell: int, pin: int | None = None) -> str:
    """What makes a guest of one cell on that of the host, with its CPU pinned or not."""
    pinned = "" if pin is None else f"<cputune><vcpupin vcpu='0' cpuset='{pin}'/></cputune>"
    return (
        f"{pinned}<numatune><memory mode='strict' nodeset='{cell}'/>"
        f"<memnode cellid='0' mode='strict' nodeset='{cell}'/></numatune>"
        "<cpu><numa><cell id='0' cpus='0' memory='16' unit='MiB'/></numa></cpu>"
    )


def hostdev(address: str) -> str:
    """A device of the host that a guest has."""
    domain, bus, rest = address.split(":")
    slot, function = rest.split(".")
    return (
        "<devices><hostdev mode='subsystem' type='pci' managed='yes'><source>"
        f"<address domain='0x{domain}' bus='0x{bus}' slot='0x{slot}' function='0x{function}'/>"
        "</source></hostdev></devices>"
    )


class Site:
    """A recorded host with libvirtd, in Placement by nova, and an agent."""

    def __init__(
        self, folder: Path, placement: HttpPlacement, server: Libvirtd, root: Path, machine: Machine
    ) -> None:
        self.folder, self.placement, self.server, self.root = folder, placement, server, root
        self.machine, self.other = machine, placement.other
        self.agent = AgentHere(folder / "agent")
        (folder / "nova" / "instances").mkdir(parents=True)
        (folder / "nova" / "compute_id").write_text(ROOT)

    def options(self, **compute: Any) -> dict[str, dict[str, Any]]:
        """What nova and the agent have in common, and options of [compute]."""
        return {
            "DEFAULT": {
                "compute_driver": "libvirt.LibvirtDriver",
                "host": "node-a",
                "state_path": self.folder / "nova",
                "instances_path": self.folder / "nova" / "instances",
                "my_ip": "127.0.0.1",
                "cpu_allocation_ratio": 4.0,
            },
            "libvirt": {"connection_uri": self.server.uri, "virt_type": "qemu"},
            "compute": {
                "cpu_shared_set": self.machine.shared,
                "cpu_dedicated_set": self.machine.dedicated,
                "provider_config_location": self.folder / "none",
                **compute,
            },
            "pci": {"device_spec": json.dumps(self.machine.spec), "report_in_placement": True},
        }

    def nova_periods(self, guests: Mapping[str, str]) -> None:
        """Start nova's tracker, and let it work for two periods. ``guests``: by device."""
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        enter = ["nsenter", "--target", str(self.server.pid), "--mount", *user]
        tracker = NovaTracker(
            self.folder, self.placement, self.options(), ROOT, "node-a", guests, enter
        )
        tracker.period(0.0)
        tracker.period(1000.0)
        tracker.stop()

    def run(self, *arguments: str, **compute: Any) -> None:
        """Run the agent; it succeeds."""
        more = {
            "host": {"sysfs_root": self.root},
            "placement": {**self.placement.credentials(), "max_in_flight": 1},
        }
        self.agent.configure({**self.options(**compute), **more})
        result = self.agent.run(*arguments)
        assert result.code == 0, result

    def content(self) -> dict[str, Any]:
        """All of Placement but generations."""
        found = json.loads(json.dumps(self.placement.dump()))
        for one in (*found["providers"].values(), *found["consumers"].values()):
            one.pop("generation")
        return dict(found)

    def held(self, name: str) -> dict[str, Any]:
        """What a guest holds, by the names of providers."""
        dump = self.placement.dump()
        names = {uuid: one["name"] for uuid, one in dump["providers"].items()}
        found = dump["consumers"][guest_uuid(name)]["allocations"]
        return {
            names[uuid].replace(names[ROOT], "root"): dict(held) for uuid, held in found.items()
        }


@contextmanager
def recorded(name: str, folder: Path) -> Iterator[tuple[Libvirtd, Path]]:
    if name == REAL:
        root = sysfs_root(name, folder)
        enable_virtual_functions(root, "0000:60:00.0", 4, "37cd")
    else:
        tree = smt_host(folder / "sys")
        tree.pci(GPU, "10de:1db4", class_code="0x030200", cell=8)
        root = tree.for_libvirt().root
    server = Libvirtd(root)
    try:
        server.start()
        yield server, root
    finally:
        server.remove()


@pytest.mark.parametrize(
    "name",
    [OWN, pytest.param(REAL, marks=pytest.mark.skipif(REAL not in RECORDINGS, reason=ABSENT))],
)
def test_nova_changes_nothing_on_a_host_that_was_taken_over_and_given_back(
    name: str, tmp_path: Path, http_placement: HttpPlacement, own_processes: None
) -> None:
    if not NOVA:
        pytest.skip(backends.reason("nova's own tracker", "set NOVA_PYTHON to a Python with nova"))
    machine = MACHINES[name]
    with recorded(name, tmp_path) as (server, root):
        site, operator = Site(tmp_path, http_placement, server, root, machine), Operator(server.uri)
        operator.define("shared", nova=True, more=cells(machine.shared_cell))
        operator.define("pinned", nova=True, more=cells(machine.pin_cell, machine.pin))
        operator.define("gpu", nova=True, more=cells(machine.shared_cell) + hostdev(machine.device))
        guests = {machine.device: guest_uuid("gpu")}
        site.nova_periods({})
        site.other.claim({ROOT: SHARED}, guest_uuid("shared"))
        site.other.claim({ROOT: DEDICATED}, guest_uuid("pinned"))
        site.other.claim({ROOT: SHARED}, guest_uuid("gpu"))
        site.nova_periods(guests)
        before = site.content()
        assert site.held("pinned") == {"root": DEDICATED}
        assert len(site.held("gpu")) == 2

        site.run("guests", "import")
        site.run("takeover", "check")
        site.run("--once", "--adopt", tree_layout="nested")
        assert site.held("pinned") == {
            "root": {"MEMORY_MB": 16},
            f"root_NUMA{machine.pin_cell}": {"PCPU": 1},
        }
        strict = {"tree_layout": "nested", "numa_mode": "strict"}
        site.run("--once", **strict)
        cell = f"root_NUMA{machine.shared_cell}"
        assert site.held("shared") == {cell: SHARED}

        operator.define("later", nova=True, more=cells(machine.shared_cell))
        cell_uuid = next(
            row["uuid"]
            for row in site.other.tree(ROOT)
            if row["name"].endswith(f"_NUMA{machine.shared_cell}")
        )
        site.other.claim({cell_uuid: SHARED}, guest_uuid("later"))
        site.run("guests", "import", **strict)
        operator.connection.lookupByName("shared").undefine()
        site.run("guests", "forget", guest_uuid("shared"), **strict)
        site.run("--once", **strict)
        operator.close()

        site.run("takeover", "undo", "--yes", **strict)
        after = site.content()
        assert after["providers"] == before["providers"]
        assert site.held("later") == {"root": SHARED}
        for consumer in ("pinned", "gpu"):
            uuid = guest_uuid(consumer)
            assert after["consumers"][uuid] == before["consumers"][uuid]
        http_placement.clear()
        site.nova_periods(guests)
        assert http_placement.requests != []
        assert http_placement.writes() == []
        assert site.content() == after
