"""nova's resource tracker on a Placement, as it is or with the agent's engine; for a Python that
has nova. The bench asks for the periods one by one: a line in, a period, its figures out.
"""

import json
import logging
import os
import sys
import time
from types import SimpleNamespace
from typing import Any, ClassVar

from keystoneauth1 import adapter, session, token_endpoint
from nova import conf, context, exception, objects  # type: ignore[import-not-found]
from nova.compute import resource_tracker  # type: ignore[import-not-found]
from nova.scheduler.client import report  # type: ignore[import-not-found]

from agent.nova import manager

CELLS = 8


class Driver:
    """A virt driver with a root, up to eight cells below it, the others devices below the cells.

    ``grown``: the first device, or the root if there is none, offers more. ``split``: the VCPUs are
    on two more children.
    """

    capabilities: ClassVar[dict[str, bool]] = {}

    def __init__(self, providers: int) -> None:
        self._cells = range(min(CELLS, providers - 1))
        self._devices = range(providers - 1 - len(self._cells))
        self.grown = self.split = False

    def capabilities_as_traits(self) -> dict[str, bool]:
        return {
            "COMPUTE_NODE": True,
            "COMPUTE_DEVICE_TAGGING": True,
            "COMPUTE_VOLUME_EXTEND": False,
        }

    def update_provider_tree(self, tree: Any, nodename: str, allocations: Any = None) -> None:
        for cell in self._cells:
            _child(tree, f"{nodename}_CELL{cell}", nodename, {"PCPU": 16})
        for number in self._devices:
            name, parent = f"{nodename}_DEVICE{number}", f"{nodename}_CELL{number % CELLS}"
            _child(tree, name, parent, {"SRIOV_NET_VF": 16 if self.grown and number == 0 else 8})
            tree.update_traits(name, ["CUSTOM_PHYSNET_A"])
        root = {"VCPU": 4096, "MEMORY_MB": 1048576}
        root["DISK_GB"] = 20000 if self.grown and not self._devices else 10000
        if self.split:
            self._split(tree, nodename, allocations)
            del root["VCPU"]
        tree.update_inventory(nodename, _inventory(root))

    def _split(self, tree: Any, nodename: str, allocations: Any) -> None:
        names = [f"{nodename}_SPLIT{half}" for half in range(2)]
        if allocations is None and not tree.exists(names[0]):
            raise exception.ReshapeNeeded
        for name in names:
            _child(tree, name, nodename, {"VCPU": 2048})
        root = tree.data(nodename).uuid
        halves = [tree.data(name).uuid for name in names]
        for number, (_, allocation) in enumerate(sorted((allocations or {}).items())):
            held = allocation["allocations"][root]["resources"]
            moved = {"VCPU": held.pop("VCPU")}
            allocation["allocations"][halves[number % 2]] = {"resources": moved}


def _inventory(totals: dict[str, int]) -> dict[str, Any]:
    return {
        name: {
            "total": total,
            "reserved": 0,
            "min_unit": 1,
            "max_unit": total,
            "step_size": 1,
            "allocation_ratio": 1.0,
        }
        for name, total in totals.items()
    }


def _child(tree: Any, name: str, parent: str, totals: dict[str, int]) -> None:
    if not tree.exists(name):
        tree.new_child(name, parent)
    tree.update_inventory(name, _inventory(totals))


class Tracker:
    """The tracker of a host with one compute node."""

    def __init__(self, engine: bool, url: str, uuid: str, providers: int) -> None:
        auth = token_endpoint.Token(endpoint=url, token="admin")
        sent = {"X-Roles": "admin,service"}
        connection = session.Session(auth=auth, additional_headers=sent)
        client = report.SchedulerReportClient(
            adapter=adapter.Adapter(connection, service_type="placement", raise_exc=False)
        )
        kind = manager.ResourceTracker if engine else resource_tracker.ResourceTracker
        self.driver = Driver(providers)
        self._tracker = kind("bench", self.driver, reportclient=client)
        # They need nova's database.
        self._tracker._sync_compute_service_disabled_trait = lambda *_: None
        self._tracker.pci_tracker = SimpleNamespace(pci_devs=[])
        self._node = SimpleNamespace(uuid=uuid, hypervisor_hostname="bench")
        self._context = context.get_admin_context()

    def period(self, consumers: list[str], startup: bool) -> None:
        """What a period asks of Placement: who holds something, and the node's tree."""
        self._tracker.tracked_instances = set(consumers)
        self._tracker._remove_deleted_instances_allocations(self._context, self._node, [], {})
        self._tracker._update_to_placement(self._context, self._node, startup)


def main() -> None:
    """Arguments: nova or engine, Placement's URL, the node's uuid, the number of providers, and a
    folder for the mirror.
    """
    mode, url, uuid, providers, folder = sys.argv[1:]
    logging.basicConfig(level=logging.WARNING)
    # It logs at each start that the node has no provider yet, and its conflicts.
    logging.getLogger("nova").setLevel(logging.CRITICAL)
    conf.CONF([], project="nova", default_config_files=[])
    conf.CONF.set_override("state_path", folder)
    objects.register_all()
    tracker = Tracker(mode == "engine", url, uuid, int(providers))
    startup = True
    print(os.getpid(), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        tracker.driver.grown, tracker.driver.split = asked["grown"], asked["split"]
        wall, cpu = time.perf_counter(), time.process_time()
        tracker.period(asked["consumers"], startup)
        startup = False
        figures = {"seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
