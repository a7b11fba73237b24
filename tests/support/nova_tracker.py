"""nova's own ResourceTracker and report client at work on one compute node, with a configuration file
of nova, and with nova's driver for libvirt or a fake one. Run by a Python that has nova.

Each line on standard input is one period, at the time that it names in seconds; the answer is a line:
``done``, or the error. There is no database, so that the compute node, its service and the guests
that have devices are as the arguments say.
"""

import json
import sys
from typing import Any
from unittest import mock

import nova.monkey_patch

nova.monkey_patch.patch()

import nova.conf  # noqa: E402 - nova has to be patched before anything else of it is imported
from nova import context, objects  # noqa: E402
from nova.compute import resource_tracker  # noqa: E402
from nova.pci import manager  # noqa: E402
from nova.scheduler.client import report  # noqa: E402
from nova.virt import fake  # noqa: E402
from nova.virt.libvirt import driver as libvirt_driver  # noqa: E402
from oslo_privsep import priv_context  # noqa: E402


def main(file: str, uuid: str, host: str, devices: str = "") -> None:
    """Serve periods until standard input ends. ``devices``: for the driver for libvirt, the guest of
    each address as a JSON object; empty for the fake driver, whose node has no devices.
    """
    nova.conf.CONF([], project="nova", default_config_files=[file])
    objects.register_all()
    for privileged in vars(sys.modules["nova.privsep"]).values():
        if isinstance(privileged, priv_context.PrivContext):
            # Without a helper of its own, because there is nothing here that needs one.
            privileged.set_client_mode(False)
    service: Any = objects.Service(disabled=False)
    objects.Service.get_by_compute_host = classmethod(lambda *_, **__: service)
    node = objects.ComputeNode(id=1, uuid=uuid, host=host, numa_topology=None)
    objects.ComputeNode.get_by_nodename = classmethod(lambda *_, **__: node)
    objects.PciDeviceList.get_by_compute_node = classmethod(
        lambda *_, **__: objects.PciDeviceList(objects=[])
    )
    driver: Any = (libvirt_driver.LibvirtDriver if devices else fake.MediumFakeDriver)(
        fake.FakeVirtAPI()
    )
    driver.init_host(host)
    (node.hypervisor_hostname,) = driver.get_available_nodes()
    tracker = resource_tracker.ResourceTracker(host, driver, report.SchedulerReportClient())
    tracker.pci_tracker = manager.PciDevTracker(context.get_admin_context(), node)
    if devices:
        _find_devices(tracker.pci_tracker, driver, json.loads(devices))
    _serve(tracker, node)


def _find_devices(tracker: Any, driver: Any, guests: dict[str, str]) -> None:
    tracker.update_devices_from_hypervisor_resources(driver._get_pci_passthrough_devices())
    for device in tracker.pci_devs:
        if (guest := guests.get(device.address)) is not None:
            device.status, device.instance_uuid = "allocated", guest


def _serve(tracker: Any, node: Any) -> None:
    print("ready", flush=True)
    clock = mock.MagicMock()
    report.time = clock
    for line in sys.stdin:
        clock.time.return_value = float(line)
        try:
            tracker._update_to_placement(context.get_admin_context(), node, startup=False)
        except Exception as error:  # noqa: BLE001 - the test shows whatever it is
            print(f"{type(error).__name__}: {error}", flush=True)
        else:
            print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
