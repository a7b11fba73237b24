"""The tracker's parts put together: operations, audits and the book of consumers, on one memory of the nodes."""

from collections.abc import Callable
from dataclasses import dataclass

from agent.model.names import ProviderUuid
from agent.tracker.book import Book
from agent.tracker.consumer_book import ConsumerBook
from agent.tracker.instance_hosts import InstanceHosts
from agent.tracker.node_audits import NodeAudits, Settings
from agent.tracker.record_store import RecordStore
from agent.tracker.shared_lease import SharedLease
from agent.tracker.slot import Listed, Slot
from agent.tracker.tracker import Clock, Tracker


@dataclass(frozen=True, slots=True)
class Tracking:
    """All that there is to do with records."""

    tracker: Tracker
    audits: NodeAudits
    book: ConsumerBook
    lease: SharedLease
    instances: InstanceHosts


def tracking(records: RecordStore, settings: Settings, clock: Clock, changed: Callable[[ProviderUuid], None]) -> Tracking:
    """The parts. ``changed``: called with each node of which something was promised or given back."""
    slots: dict[ProviderUuid, Slot] = {}
    listed, host = Listed(), settings.agent.host
    return Tracking(
        Tracker(records, slots, listed, clock, changed, host), NodeAudits(records, slots, listed, settings, clock), Book(records, slots, host),
        SharedLease(records, host, settings.agent.lease_seconds, clock), InstanceHosts(records, host),
    )  # fmt: skip
