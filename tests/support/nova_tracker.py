"""nova's own ResourceTracker and report client at work on one compute node, with a configuration file
of nova and nova's fake virt driver. Run by a Python that has nova.

Each line on standard input is one period, at the time that it names in seconds; the answer is a line:
``done``, or the error. There is no database, so that the compute node and its service are as this
module says.
"""

import sys
from typing import Any
from unittest import mock

import nova.monkey_patch

nova.monkey_patch.patch()

import nova.conf  # noqa: E402 - nova has to be patched before anything else of it is imported
from nova import context, objects  # noqa: E402
from nova.compute import resource_tracker  # noqa: E402
from nova.scheduler.client import report  # noqa: E402
from nova.virt import fake  # noqa: E402


def main(file: str, uuid: str, host: str) -> None:
    """Serve periods until standard input ends."""
    nova.conf.CONF([], project="nova", default_config_files=[file])
    objects.register_all()
    service: Any = objects.Service(disabled=False)
    objects.Service.get_by_compute_host = classmethod(lambda *_, **__: service)
    driver = fake.MediumFakeDriver(fake.FakeVirtAPI())
    driver.init_host(host)
    tracker = resource_tracker.ResourceTracker(host, driver, report.SchedulerReportClient())
    # The node has no devices.
    tracker.pci_tracker = mock.MagicMock()
    tracker.pci_tracker.pci_stats.has_remote_managed_device_pools.return_value = False
    node = objects.ComputeNode(uuid=uuid, hypervisor_hostname=host, host=host)
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
