"""The tracker's parts put together: operations, audits and the book of consumers, on one memory of the nodes."""

from collections.abc import Callable
from dataclasses import dataclass

from agent.model.names import ProviderUuid
from agent.tracker.stored_consumer_records import StoredConsumerRecords
from agent.tracker.consumer_records import ConsumerRecords
from agent.tracker.instance_hosts import InstanceHosts
from agent.tracker.usage_step import UsageStep, UsageSettings
from agent.tracker.record_store import RecordStore
from agent.tracker.shared_lease import SharedLease
from agent.tracker.node_entry import Listed, NodeEntry
from agent.tracker.tracker import Clock, Tracker


@dataclass(frozen=True, slots=True)
class TrackerServices:
    """All that there is to do with records."""

    tracker: Tracker
    audits: UsageStep
    book: ConsumerRecords
    lease: SharedLease
    instances: InstanceHosts


def build_tracker_services(records: RecordStore, settings: UsageSettings, clock: Clock, changed: Callable[[ProviderUuid], None]) -> TrackerServices:
    """The parts. ``changed``: called with each node of which something was promised or given back."""
    entries: dict[ProviderUuid, NodeEntry] = {}
    listed, host = Listed(), settings.agent.host
    return TrackerServices(
        Tracker(records, entries, listed, clock, changed, host), UsageStep(records, entries, listed, settings, clock), StoredConsumerRecords(records, entries, host),
        SharedLease(records, host, settings.agent.lease_seconds, clock), InstanceHosts(records, host),
    )  # fmt: skip
