"""nova's resource tracker on a Placement, as it is or with the agent's engine; for a Python that
has nova. The bench asks for the periods one by one: a line in, a period, its figures out.
"""

import logging
import sys
from types import SimpleNamespace
from typing import Any

from keystoneauth1 import adapter, session, token_endpoint
from nova import conf, context, exception, objects
from nova.compute import resource_tracker
from nova.scheduler.client import report

from agent.nova import manager
from bench.figures import Message, Stopwatch, serve
from bench.tree_driver import HELD, Tree, TreeDriver


class NovaTreeDriver(TreeDriver):
    """The common driver for nova."""

    reshape_needed = exception.ReshapeNeeded


class NoDevices:
    """nova's tracker of PCI devices on a host without any, and without nova's database."""

    pci_devs: tuple[()] = ()

    def __init__(self) -> None:
        self.stats = SimpleNamespace(to_device_pools_obj=objects.PciDevicePoolList)

    def claim_instance(self, *_: Any) -> None:
        """Claim nothing."""

    def update_pci_for_instance(self, *_: Any, **__: Any) -> None:
        """Count nothing."""

    def save(self, _context: Any) -> None:
        """Write nothing."""


class Tracker:
    """The tracker of a host with one compute node or many."""

    def __init__(self, engine: bool, url: str) -> None:
        auth = token_endpoint.Token(endpoint=url, token="admin")
        sent = {"X-Roles": "admin,service"}
        connection = session.Session(auth=auth, additional_headers=sent)
        client = report.SchedulerReportClient(
            adapter=adapter.Adapter(connection, service_type="placement", raise_exc=False)
        )
        kind = manager.ResourceTracker if engine else resource_tracker.ResourceTracker
        self.driver = NovaTreeDriver()
        self._tracker: Any = kind("bench", self.driver, reportclient=client)
        # They need nova's database.
        self._tracker._sync_compute_service_disabled_trait = lambda *_: None
        self._tracker.pci_tracker = NoDevices()
        self._context = context.get_admin_context()
        self._claimed: dict[str, Any] = {}
        self._startup = True

    def work(self, message: Message) -> Message:
        """Make a period; ``claims`` or ``abort`` in the message ask for that instead.

        ``tree``: what the driver reports; ``consumers``: the instances that the tracker knows.
        """
        if "claims" in message:
            for instance in message["claims"]:
                self._claim(instance)
            return {}
        if "abort" in message:
            claimed = self._claimed.pop(message["abort"])
            self._tracker.abort_instance_claim(self._context, claimed, claimed.node)
            return {}
        self.driver.tree = Tree(**message["tree"])
        self._tracker.tracked_instances = set(message.get("consumers", ()))
        errors = []
        for uuid, name in self.driver.tree.names.items():
            node = SimpleNamespace(uuid=uuid, hypervisor_hostname=name)
            try:
                self._period(node)
            except Exception as error:  # noqa: BLE001 - nova's manager goes on with the next node
                errors.append(f"{type(error).__name__}: {error}"[:500])
        self._startup = False
        return {"errors": errors}

    def _period(self, node: Any) -> None:
        """Do what a period asks of Placement: who holds something, and the node's tree."""
        self._tracker._remove_deleted_instances_allocations(self._context, node, [], {})
        self._tracker._update_to_placement(self._context, node, self._startup)

    def _claim(self, uuid: str) -> None:
        """Claim room for a new instance on the only node."""
        ((root, name),) = self.driver.tree.names.items()
        nodes = self._tracker.compute_nodes
        nodes[name] = nodes.get(name) or _compute_node(root, name)
        self._tracker.is_bfv[uuid] = False
        self._claimed[uuid] = instance = _instance(self._context, uuid)
        self._tracker.instance_claim(self._context, instance, name, {})


def _compute_node(uuid: str, name: str) -> Any:
    amounts = dict.fromkeys(("memory_mb_used", "vcpus_used", "local_gb_used", "running_vms"), 0)
    return objects.ComputeNode(
        id=1,
        uuid=uuid,
        host="bench",
        hypervisor_hostname=name,
        memory_mb=1048576,
        vcpus=4096,
        local_gb=10000,
        numa_topology=None,
        pci_device_pools=objects.PciDevicePoolList(),
        **amounts,
    )


def _instance(admin: Any, uuid: str) -> Any:
    flavor = objects.Flavor(
        id=1,
        memory_mb=HELD["MEMORY_MB"],
        vcpus=HELD["VCPU"],
        root_gb=0,
        ephemeral_gb=0,
        swap=0,
        extra_specs={},
    )
    return objects.Instance(
        admin,
        uuid=uuid,
        project_id="bench",
        user_id="bench",
        host=None,
        node=None,
        vm_state="building",
        task_state=None,
        os_type=None,
        flavor=flavor,
        numa_topology=None,
        resources=None,
        pci_requests=objects.InstancePCIRequests(instance_uuid=uuid, requests=[]),
    )


def main() -> None:
    """Arguments: nova or engine, Placement's URL, and a folder for the mirror."""
    mode, url, folder = sys.argv[1:]
    stopwatch = Stopwatch()
    logging.basicConfig(level=logging.WARNING)
    # It logs at each start that the node has no provider yet, and its conflicts.
    logging.getLogger("nova").setLevel(logging.CRITICAL)
    conf.CONF([], project="nova", default_config_files=[])
    conf.CONF.set_override("state_path", folder)
    objects.register_all()
    # There is no database: what nova would write to it costs nothing here.
    objects.Instance.save = objects.ComputeNode.save = lambda *_, **__: None
    tracker = Tracker(mode == "engine", url)
    serve(stopwatch, tracker.work)


if __name__ == "__main__":
    main()
