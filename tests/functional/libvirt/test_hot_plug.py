"""Devices that are plugged into a running host: the real libvirtd hears of them as from udev, over
a recording that changes.
"""

import json

import pytest

from tests.support.libvirt_host import SOON, LibvirtDaemon
from tests.support.libvirtd import Libvirtd
from tests.support.recorded_sysfs import smt_host
from tests.support.service_manager import until
from tests.support.tracking import uuid_of

CARD, IDS = "0000:5e:00.0", "8086:1521"
FUNCTION, ITS_IDS = "0000:3b:02.2", "8086:154c"


@pytest.fixture
def plugged(tmp_path, http_placement):
    """A daemon that audits by itself only once, the libvirtd below it, and the recording below
    that.
    """
    sysfs = smt_host(tmp_path / "sys").for_libvirt()
    server = Libvirtd(sysfs.root)
    try:
        server.start()
        daemon = LibvirtDaemon(tmp_path / "agent", server, http_placement, -1)
        specs = [{"vendor_id": "8086", "product_id": product} for product in ("1521", "154c")]
        daemon.config["pci"] = {"report_in_placement": True, "device_spec": json.dumps(specs)}
        daemon.command.configure(daemon.config)
        with daemon.service.running():
            until(daemon.ready, lambda: daemon.service)
            yield daemon, server, sysfs
            assert daemon.service.stop()[0] == 0
    finally:
        server.remove()


def devices(placement):
    """What the tree has below the cells: name without the root's, and totals."""
    providers = placement.dump()["providers"].values()
    return {
        one["name"].rpartition("_")[2]: {
            name: record["total"] for name, record in one["inventories"].items()
        }
        for one in providers
        if ":" in one["name"]
    }


@pytest.mark.long
def test_a_device_that_is_plugged_in_has_a_provider_within_seconds_and_loses_it_when_it_is_pulled_out(
    plugged, http_placement
):
    daemon, server, sysfs = plugged
    before = {"0000:3B:00.0": {"CUSTOM_PCI_8086_154C": 2}}
    assert devices(http_placement) == before
    properties = {"SUBSYSTEM": "pci", "PCI_CLASS": "20000", "PCI_ID": IDS, "PCI_SLOT_NAME": CARD}
    folder = sysfs.pci(CARD, IDS, cell=8)
    sysfs.for_libvirt()
    there = {**before, "0000:5E:00.0": {"CUSTOM_PCI_8086_1521": 1}}
    server.uevent("add", folder, **properties)
    until(lambda: devices(http_placement) == there, lambda: daemon.service, SOON)

    # What others have on it outlives its absence.
    (card,) = (
        uuid
        for uuid, one in http_placement.dump()["providers"].items()
        if one["name"].endswith("5E:00.0")
    )
    other, traits, zone = http_placement.other, http_placement.other.traits, uuid_of("zone")
    ours = traits(card)
    other.set_traits(card, {*ours, "CUSTOM_RACK7"})
    other.set_aggregates(card, {zone})
    server.uevent("remove", folder, **properties)
    absent = {**before, "0000:5E:00.0": {}}
    until(lambda: devices(http_placement) == absent, lambda: daemon.service, SOON)
    until(lambda: traits(card) == {"CUSTOM_RACK7"}, lambda: daemon.service, SOON)
    until(lambda: ("held-device", None) in daemon.drift(), lambda: daemon.service, SOON)
    server.uevent("add", folder, **properties)
    until(lambda: devices(http_placement) == there, lambda: daemon.service, SOON)
    until(lambda: traits(card) == {*ours, "CUSTOM_RACK7"}, lambda: daemon.service, SOON)
    assert other.aggregates(card) == {zone}

    other.set_traits(card, ours)
    other.set_aggregates(card, ())
    server.uevent("remove", folder, **properties)
    until(lambda: devices(http_placement) == before, lambda: daemon.service, SOON)
    folder = sysfs.virtual_function("0000:3b:00.0", 2, FUNCTION, ITS_IDS, cell=0)
    sysfs.for_libvirt()
    server.uevent(
        "add", folder, SUBSYSTEM="pci", PCI_CLASS="20000", PCI_ID=ITS_IDS, PCI_SLOT_NAME=FUNCTION
    )
    until(
        lambda: devices(http_placement) == {"0000:3B:00.0": {"CUSTOM_PCI_8086_154C": 3}},
        lambda: daemon.service,
        SOON,
    )
