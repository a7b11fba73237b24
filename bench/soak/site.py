"""The parts of a soak: a real Placement over HTTP, a real libvirtd over a made-up host, and the daemon as a process of its own, on a clock
that can be set.
"""

import json
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.support.http_placement import HttpPlacement
from tests.support.libvirt_host import LibvirtDaemon, Operator
from tests.support.libvirtd import Libvirtd
from tests.support.recorded_sysfs import RecordedSysfs, smt_host
from tests.support.service_manager import until

WALL_CLOCK = Path(__file__).with_name("wall_clock.c")
"""libfaketime also changes how long waits and sleeps take, and fails those of Python 3.11 with EINVAL."""
PERIOD = 1
READ_TIMEOUT = 5
CARD, IDS = "0000:5e:00.0", "8086:1521"
"""A device that is plugged in and pulled out."""
THEIR_CLASS, THEIR_TRAIT = "CUSTOM_SOAK_LICENSE", "CUSTOM_SOAK_RACK_7"
START_SECONDS = 120.0


class Site:
    """``root``: the uuid of the node. ``copy``: an older copy of Placement's database."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.placement = HttpPlacement(folder)
        self.placement.start()
        stack.callback(self.placement.stop)
        self.sysfs: RecordedSysfs = smt_host(folder / "sys").for_libvirt()
        self.libvirtd = Libvirtd(self.sysfs.root)
        stack.callback(self.libvirtd.remove)
        self.libvirtd.start()
        self.daemon = LibvirtDaemon(folder / "agent", self.libvirtd, self.placement, PERIOD)
        specs = [{"vendor_id": "8086", "product_id": product} for product in ("1521", "154c")]
        self.daemon.config["pci"] = {"report_in_placement": True, "device_spec": json.dumps(specs)}
        self.daemon.config["placement"]["read_timeout"] = READ_TIMEOUT
        self.daemon.command.configure(self.daemon.config)
        self.client, self.copy = self.daemon.client, folder / "placement.copy"
        self._clock = folder / "clock"
        self._clock.write_bytes(bytes(8))
        self.clock_can_be_set = shutil.which("cc") is not None
        stack.enter_context(self.daemon.service.running(**self._environment()))
        until(self.daemon.ready, lambda: self.daemon.service, START_SECONDS)
        self.root = str(self.daemon.node["uuid"])
        self._others_come()
        self.operator = Operator(self.libvirtd.uri)
        stack.callback(self._operator_goes)
        until(lambda: self.trouble == "", lambda: self.trouble, START_SECONDS)
        self.providers = self._providers()
        self.placement.save(self.copy)

    def _operator_goes(self) -> None:
        # Whichever there is then: the one of the beginning does not outlive libvirtd.
        self.operator.close()

    def set_clock(self, seconds: int) -> None:
        """Set the daemon's wall clock so many seconds ahead of the machine's."""
        # In one write, because the daemon has the file mapped.
        with self._clock.open("r+b") as file:
            file.write(struct.pack("q", seconds))

    def _environment(self) -> dict[str, str]:
        """What gives the daemon a clock that can be set, and makes it a process of its own instead of a fork of one that has everything
        imported.
        """
        library = self.folder / "wall_clock.so"
        if not self.clock_can_be_set:
            return {"PYTHONHASHSEED": "0"}
        command = ["cc", "-shared", "-fPIC", "-O2", "-o", library, WALL_CLOCK, "-ldl"]
        subprocess.run(command, check=True)
        return {"LD_PRELOAD": str(library), "WALL_CLOCK_FILE": str(self._clock)}

    def _others_come(self) -> None:
        """Somebody else has a provider below the node, a consumer there, a trait and an aggregate."""
        other = self.placement.other
        child = other.create_provider("theirs", parent=self.root)
        other.set_inventory(child, {THEIR_CLASS: 4})
        self.their_consumer = other.claim({child: {THEIR_CLASS: 1}})
        other.set_traits(self.root, {*other.traits(self.root), THEIR_TRAIT})
        other.set_aggregates(self.root, {self.their_consumer})

    def _providers(self) -> dict[str, Any]:
        """All of Placement's providers, but for what grows with each write."""
        return {
            uuid: {name: value for name, value in one.items() if name != "generation"}
            for uuid, one in self.placement.dump()["providers"].items()
        }

    @property
    def trouble(self) -> str:
        """What is not as it has to be at rest; empty if all is."""
        if not self.daemon.ready():
            return f"not ready: {self.daemon.service.status}"
        node = self.daemon.node
        if node["state"] not in ("in-sync", "changed") or node["errors"]:
            return f"the node is {node['state']}: {node['errors']}"
        if node["drift_warnings"]:
            return f"drift: {sorted(map(str, self.daemon.drift()))}"
        return ""

    @property
    def damage(self) -> str:
        """What of Placement's providers is not as in the beginning; empty if all is."""
        found = self._providers()
        wrong = [
            f"{uuid}: {found.get(uuid)} instead of {self.providers.get(uuid)}"
            for uuid in sorted(found.keys() | self.providers.keys())
            if found.get(uuid) != self.providers.get(uuid)
        ]
        return "\n".join(wrong)


@contextmanager
def site_in(folder: Path) -> Iterator[Site]:
    """A running site; all its processes end with the block."""
    with ExitStack() as stack:
        yield Site(folder, stack)
