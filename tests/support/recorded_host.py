"""A node whose devices the driver ``host`` reads from a recording, which a test changes while its
guests have some of them.
"""

from pathlib import Path
from typing import Any

from agent.driver.interface import HostContext
from agent.tree.policy import Layout
from drivers.host import HostDriver
from tests.support.device_host import NODE, ROOT, DeviceHost
from tests.support.host_driver import host_conf
from tests.support.placement import PlacementServer


class RecordedHost(DeviceHost):
    """``root``: of the recording. Devices are called by their addresses."""

    def __init__(
        self, placement: PlacementServer, folder: Path, root: Path, layout: Layout
    ) -> None:
        super().__init__(placement, folder, layout)
        self.bus = root / "bus/pci/devices"
        self.devices = {}
        driver = HostDriver(host_conf(root))
        driver.start(HostContext(name=NODE, identity=ROOT, state_path=folder))
        self.driver: Any = driver

    def provider(self, device: str) -> str:
        """The uuid of the provider of a device's card, in Placement."""
        row = self.rows[device]
        name = f"{NODE}_{(row.parent or row.address).upper()}"
        return next(
            str(one["uuid"]) for one in self.placement.other.tree(ROOT) if one["name"] == name
        )

    def file(self, address: str, name: str) -> Path:
        """What the recording has of a device."""
        return self.bus / address / name
