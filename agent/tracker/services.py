"""Construction of the tracker's services: operations, usage step, consumer records, leases and
instance hosts, on one shared set of node entries.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from agent.model.names import ConsumerUuid, ProviderUuid, is_uuid, normal_uuid
from agent.tracker.consumer_records import ConsumerRecords, StoredConsumerRecords
from agent.tracker.leases import NodeLeases, SharedLease
from agent.tracker.node_entry import ListedNodes, NodeEntry
from agent.tracker.stored_state import Clock, RecordStore
from agent.tracker.tracker import Tracker
from agent.tracker.usage_step import UsageSettings, UsageStep


class InstanceHosts:
    """Look-ups of instances by host in the records, for ``host``. Threads may share it."""

    def __init__(self, records: RecordStore, host: str) -> None:
        self._records, self._host = records, host

    def elsewhere(self, instances: Collection[str]) -> frozenset[str]:
        """Return those of ``instances`` (uuids, in any spelling) that are on another host.

        :raises StoreError: the records cannot be read.
        """
        spelled = {ConsumerUuid(normal_uuid(given)): given for given in instances if is_uuid(given)}
        if not spelled:
            return frozenset()
        with self._records.reading() as reading:
            found = reading.consumers(list(spelled)).instances
        return frozenset(
            spelled[uuid]
            for uuid, instance in found.items()
            if instance.host not in (None, self._host) and not instance.removed
        )

    def nodes(self) -> frozenset[str]:
        """Return the uuids of the nodes on which this host has instances.

        :raises StoreError: the records cannot be read.
        """
        with self._records.reading() as reading:
            return frozenset(reading.nodes_with_instances(self._host))


@dataclass(frozen=True, slots=True)
class TrackerServices:
    """The services of the tracker that a process uses."""

    tracker: Tracker
    """The operations on claims, moves and instances."""
    usage_step: UsageStep
    """The step of an audit that reconciles the records with the driver report."""
    consumer_records: ConsumerRecords
    """What the records know of consumers of allocations."""
    node_leases: NodeLeases
    """The leases on the nodes of this agent."""
    shared_lease: SharedLease
    """The lease on many nodes at once."""
    instances: InstanceHosts
    """Look-ups of instances by host."""


def build_tracker_services(
    records: RecordStore,
    settings: UsageSettings,
    clock: Clock,
    changed: Callable[[ProviderUuid], None],
) -> TrackerServices:
    """Build the services. ``changed``: called with each node on which resources were promised or
    given back.
    """
    entries: dict[ProviderUuid, NodeEntry] = {}
    listed, host = ListedNodes(), settings.agent.host
    return TrackerServices(
        Tracker(records, entries, listed, clock, changed, host),
        UsageStep(records, entries, listed, settings, clock),
        StoredConsumerRecords(records, entries, host),
        NodeLeases(records, entries, settings.agent, clock),
        SharedLease(records, host, settings.agent.lease_seconds, clock),
        InstanceHosts(records, host),
    )
