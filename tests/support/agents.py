"""Agents with several nodes each, on one store, whose hosts show what a test says."""

from collections.abc import Iterable
from dataclasses import replace

from agent.model.devices import DeviceRecord
from agent.model.facts import CpuFacts, HostFacts
from agent.model.host_units import AssignableUnit
from agent.model.names import ProviderUuid
from agent.model.provider_tree import ProviderTree
from agent.numa.host_policy import HostPolicy
from agent.store.records import Records
from agent.tracker.node_record import Agent as Identity
from agent.tracker.node_state import NodeView
from agent.tracker.reconcile import ReconcileRules
from agent.tracker.tracker import build_tracker_services
from agent.tracker.usage_step import UsageSettings
from tests.support.promised import CELLS, PF, SHARED, TYPES, VFS, Shown
from tests.support.tracking import NUMA_RESERVED, PMEM, Time, numa_cells, uuid_of

HOUR = 3600.0
CORES = ((4, 5), (6, 7), (12, 13), (14, 15))


class Agent:
    """One agent. All its nodes have two cells, a card, a PF with two VFs, and two units, as far as
    they are ``shown``.
    """

    def __init__(self, name: str, nodes: Iterable[str], records: Records, time: Time) -> None:
        self.name, self.records, self._time = name, records, time
        self.nodes = {ProviderUuid(uuid_of(node)): node for node in nodes}
        self.shown = dict.fromkeys(self.nodes, Shown())
        self.restart()

    def restart(self) -> None:
        """Forget all that is only in memory."""
        policy = replace(NUMA_RESERVED, host=HostPolicy(SHARED, frozenset().union(*CELLS)))
        settings = UsageSettings(
            Identity(self.name, "192.0.2.1", HOUR / 12),
            policy,
            ReconcileRules(stranded_after=HOUR),
            self._devices,
        )
        made = build_tracker_services(self.records, settings, self._time, lambda _node: None)
        self.tracker, self.usage_step = made.tracker, made.usage_step

    def audit(self, node: ProviderUuid, *, start: bool = False, dry_run: bool = False) -> NodeView:
        """Audit the node on what is shown of it now."""
        shown = self.shown[node]
        cores = [[cpu for cpu in core if cpu in shown.online] for core in CORES]
        facts = HostFacts(
            self.nodes[node],
            self._time(),
            "test",
            cpu=CpuFacts(shown.online),
            memory_mib=32768,
            disk_gib=500,
            numa=numa_cells(filter(None, cores)),
            units=None
            if shown.units is None
            else tuple(AssignableUnit(PMEM, one) for one in sorted(shown.units)),
            incomplete={"units": "not read"} if shown.units is None else {},
        )
        # As a pass does first, so that every test sees what follows from a node without changes too.
        self.usage_step.read_versions([node])
        return self.usage_step.audit(node, facts, ProviderTree(), start=start, dry_run=dry_run)

    def _devices(self, node: ProviderUuid, _facts: HostFacts) -> tuple[DeviceRecord, ...] | None:
        found = self.shown[node].devices
        return None if found is None else tuple(_device(node, one) for one in sorted(found))


def _device(node: ProviderUuid, address: str) -> DeviceRecord:
    return DeviceRecord(
        node=node,
        address=address,
        vendor_id="8086",
        product_id="1563",
        type=TYPES[address],
        parent=PF if address in VFS else None,
    )
