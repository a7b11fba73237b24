"""A libvirtd without one of its own drivers knows nothing of what that driver lists: what the agent
knew of it stays.
"""

import json

import pytest

from tests.support.libvirt_host import SOON, LibvirtDaemon
from tests.support.libvirtd import Libvirtd
from tests.support.recorded_sysfs import smt_host
from tests.support.service_manager import until

pytestmark = pytest.mark.long

GPU = "0000:06:00.0"


def devices(placement):
    """The inventories below the cells, by name without the root's."""
    providers = placement.dump()["providers"].values()
    return {
        one["name"].partition("_")[2]: {
            name: record["total"] for name, record in one["inventories"].items()
        }
        for one in providers
        if ":" in one["name"] or "_pci_" in one["name"]
    }


def test_cards_and_mediated_devices_stay_while_libvirtd_has_no_node_device_driver(
    tmp_path, http_placement
):
    sysfs = smt_host(tmp_path / "sys")
    sysfs.pci(GPU, "10de:1db4", class_code="0x030200", cell=8)
    sysfs.mediated(GPU, {"nvidia-35": 15}, {})
    server = Libvirtd(sysfs.for_libvirt().root)
    try:
        server.start()
        daemon = LibvirtDaemon(tmp_path / "agent", server, http_placement, 2)
        daemon.config["pci"] = {
            "report_in_placement": True,
            "device_spec": json.dumps({"vendor_id": "8086", "product_id": "154c"}),
        }
        daemon.config["devices"] = {"enabled_mdev_types": "nvidia-35"}
        daemon.command.configure(daemon.config)
        with daemon.service.running():
            until(daemon.ready, lambda: daemon.service)
            known = {
                "0000:3B:00.0": {"CUSTOM_PCI_8086_154C": 2},
                "pci_0000_06_00_0": {"VGPU": 15},
            }
            assert devices(http_placement) == known
            server.stop()
            server.lacking = ("nodedev",)
            server.start()
            until(
                lambda: "node device driver" in json.dumps(daemon.node),
                lambda: daemon.node,
                SOON,
            )
            assert daemon.node["state"] == "degraded"
            assert "libvirt_driver_nodedev.so" in json.dumps(daemon.node)
            assert devices(http_placement) == known
            # The remedy that is named.
            server.stop()
            server.lacking = ()
            server.start()
            until(daemon.ready, lambda: daemon.service, SOON)
            assert devices(http_placement) == known
            assert daemon.service.stop()[0] == 0
    finally:
        server.remove()
