"""Tracker: the operations on the claims of this host's nodes; and the services of which it is one.

Each operation checks its request and names the pure function that plans it, see
:mod:`agent.tracker.claims`, :mod:`agent.tracker.moves` and :mod:`agent.tracker.verdicts`.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from agent.model.devices import DeviceState
from agent.model.instance import Instance
from agent.model.names import ConsumerUuid, ProviderUuid, printable
from agent.model.node_records import Migration, RecordChanges
from agent.numa.request import overlooked
from agent.store.reading import RecordReader
from agent.store.records import Records
from agent.tracker import claims, domains, move_claims, moves, verdicts
from agent.tracker.claim_usage import clean_device
from agent.tracker.consumer_records import ConsumerRecords, InstanceHosts
from agent.tracker.domains import GuestImport
from agent.tracker.errors import GuestsUnknown
from agent.tracker.node_entry import (
    ListedNodes,
    NodeEntry,
    NodeLeases,
    SharedLease,
    current_state,
    lock_nodes,
)
from agent.tracker.node_record import count_build
from agent.tracker.node_state import NodeState
from agent.tracker.operation_runner import OperationRunner, nothing_audited, state_of
from agent.tracker.reserving import needs_search
from agent.tracker.stored_state import (
    BuildResult,
    Clock,
    DeviceClaim,
    InstanceClaim,
    InstanceUpdate,
    MoveClaim,
    OperationTarget,
    PlannedChange,
    StoredState,
)
from agent.tracker.usage_step import UsageSettings, UsageStep

LOG = logging.getLogger(__name__)


class Tracker:
    """The claims of the nodes of one host. Threads may share it."""

    def __init__(
        self,
        records: Records,
        entries: Mapping[ProviderUuid, NodeEntry],
        listed: ListedNodes,
        clock: Clock,
        changed: Callable[[ProviderUuid], None],
        host: str,
    ) -> None:
        """``entries``: the nodes that were audited, by uuid. ``listed``: the nodes that the driver
        listed last. ``changed``: called with each node on which resources were promised or given
        back, after the change is durable. ``host``: this host's name.
        """
        self._records, self._entries, self._clock, self._host = records, entries, clock, host
        self._runner = OperationRunner(records, entries, listed, changed, host)

    # --- claims of guests and devices -------------------------------------------------------------

    def claim(self, request: InstanceClaim) -> PlannedChange:
        """Claim resources for a new guest.

        :raises TrackerError: the claim is denied; nothing was written.
        """
        target = OperationTarget(request.node, request.instance.uuid, request.id)
        planned = self._runner.on_node(
            target,
            lambda state, stored: claims.claim_instance(state, stored, request, self._clock()),
            searches=needs_search(request),
        )
        if not planned.repeated and (
            keys := overlooked(
                request.instance.flavor.extra_specs, request.instance.image_properties
            )
        ):
            LOG.warning(
                "instance %s: %s without effect: there is no such cell, or it is no number",
                request.instance.uuid,
                printable(", ".join(keys)),
            )
        return planned

    def abort(self, claim: str) -> PlannedChange:
        """Give back the resources of a claim of a guest, a move or devices; harmless when repeated.

        :raises TrackerError: there is no such claim, or the guest, move or devices that it was
            opened for are there already.
        """

        def plan(
            states: Mapping[ProviderUuid, NodeState], stored: StoredState, _: RecordReader
        ) -> PlannedChange:
            if stored.claim is not None and stored.claim.purpose == "move":
                return moves.abort(stored, self._clock())
            state = states.get(stored.claim.node) if stored.claim is not None else None
            shown = state.host.guests if state is not None else None
            return claims.abort_claim(stored, self._clock(), shown or ())

        return self._runner.carry_out(OperationTarget(claim=claim), plan)

    def change(
        self, claim: str, plan: Callable[[StoredState, float], PlannedChange]
    ) -> PlannedChange:
        """Carry out an operation on a claim or a move, by its id; harmless when repeated. ``plan``:
        from the stored state and the time in seconds since the epoch, such as
        :func:`agent.tracker.moves.confirm`.

        :raises TrackerError: there is no such claim, or ``plan`` refuses.
        """
        return self._runner.carry_out(
            OperationTarget(claim=claim), lambda _, stored, __: plan(stored, self._clock())
        )

    def claim_devices(self, request: DeviceClaim) -> PlannedChange:
        """Claim devices for a guest of this node.

        :raises TrackerError: the claim is denied; nothing was written.
        """
        target = OperationTarget(request.node, request.instance, request.id)
        return self._runner.on_node(
            target,
            lambda state, stored: claims.claim_devices(state, stored, request, self._clock()),
            searches=True,
        )

    def free_devices(
        self, node: ProviderUuid, instance: ConsumerUuid, only: DeviceState | None
    ) -> int:
        """Free the devices that the guest has on the node beside those of its own claim.

        ``only``: free the devices in this state only. Returns the number of devices.

        :raises TrackerError: the node is not managed here.
        """
        target = OperationTarget(node, instance)
        changes = self._runner.on_node(
            target, lambda state, stored: claims.free_devices_of(state, stored, only, self._clock())
        )
        return len(changes.devices) + len(changes.dropped_devices)

    def clean(self, node: ProviderUuid, address: str) -> bool:
        """Record that a device was cleaned, and free the reserved devices of its card.

        Returns whether a device was reserved.

        :raises TrackerError: the node is not managed here, it has no such device, or a guest has
            the device.
        """
        return bool(
            self._runner.on_node(
                OperationTarget(node), lambda state, _: clean_device(state.devices, address)
            )
        )

    # --- moves ------------------------------------------------------------------------------------

    def claim_move(self, request: MoveClaim) -> PlannedChange:
        """Claim resources for a guest that moves to this host or is resized on it; or record that a
        guest of this host leaves for another one.

        :raises TrackerError: the claim is denied; nothing was written.
        """
        migration = (
            request.migration.uuid if request.migration is not None else ConsumerUuid(request.id)
        )
        hosts = frozenset([request.instance.host] if request.instance.host is not None else [])
        target = OperationTarget(request.node, request.instance.uuid, request.id, migration, hosts)
        if request.node in self._entries:
            return self._runner.on_node(
                target,
                lambda state, stored: move_claims.claim_move(state, stored, request, self._clock()),
                searches=True,
            )
        if (source := self._runner.source_of_move(request)) is None:
            return self._runner.carry_out(
                OperationTarget(claim=request.id),
                lambda _, stored, __: move_claims.repeat(stored, request, self._host),
            )
        return self._runner.on_node(
            replace(target, node=source),
            lambda state, stored: move_claims.leave(state, stored, request, self._clock()),
        )

    # --- instances and builds ---------------------------------------------------------------------

    def update(self, instance: ConsumerUuid, update: InstanceUpdate) -> Instance:
        """Record an instance's new state; an instance that is deleted gives back all its resources.

        :raises TrackerError: the instance is not here, or was changed since it was read.
        """
        return self._change_instance(
            instance,
            lambda state, stored, migrations: verdicts.update_instance(
                state, stored, update, self._clock(), migrations
            ),
        )

    def forget(self, instance: ConsumerUuid) -> Instance:
        """End the record of a guest that is gone from its hypervisor; harmless when repeated.

        :raises TrackerError: the instance is not here, it moves, or the hypervisor shows the guest
            or may still have it.
        """
        return self._change_instance(
            instance,
            lambda state, stored, migrations: verdicts.forget_guest(
                state, stored, self._clock(), migrations
            ),
        )

    def _change_instance(
        self,
        instance: ConsumerUuid,
        plan: Callable[[NodeState, StoredState, Iterable[Migration]], RecordChanges],
    ) -> Instance:
        """Carry out an operation on an instance of this host, and return the instance. ``plan``:
        from the state of its node, the stored state and the instance's migrations.
        """
        node = self._runner.node_of_instance(instance)

        def changes(
            states: Mapping[ProviderUuid, NodeState], stored: StoredState, reading: RecordReader
        ) -> RecordChanges:
            migrations = reading.consumers([instance]).migrations.values()
            return plan(state_of(states, node), stored, migrations)

        self._runner.carry_out(OperationTarget(node, instance), changes)
        with self._records.reading() as reading:
            found = reading.instance(instance)
        assert found is not None
        return found

    def count_build(self, node: ProviderUuid, result: BuildResult) -> int:
        """Count the failed builds in a row, and return their number.

        :raises TrackerError: the node is not managed here.
        """
        self._runner.on_node(
            OperationTarget(node),
            lambda state, _: count_build(state.node, result, self._clock()),
        )
        return self.view(node).node.failed_builds

    def note_nothing_left(
        self, instance: ConsumerUuid, nodes: Collection[ProviderUuid] | None = None
    ) -> None:
        """Record that Placement has nothing of an instance on nodes of this host, all of them by
        default: what it has there later is no leftover of an evacuation that is over.

        :raises StoreError: the store cannot be read or written.
        """
        with self._records.reading() as reading:
            over = {
                evacuation.uuid
                for node in (reading.nodes_of(self._host) if nodes is None else nodes)
                for evacuation in reading.evacuations_from(self._host, node)
                if evacuation.instance == instance
            }
        if over:
            self._records.clear(over)

    # --- guests that are there already ------------------------------------------------------------

    def import_guests(
        self, node: ProviderUuid, again: Collection[ConsumerUuid] = ()
    ) -> GuestImport:
        """Build records of all guests that the node's last audit saw and that no record knows,
        where that is possible; harmless when repeated. ``again``: guests that are recorded anew
        although their records say that they are deleted or elsewhere.

        :raises TrackerError: the node is not managed here or not ready, or its driver does not
            report guests; nothing was written.
        """

        def plan(
            states: Mapping[ProviderUuid, NodeState], _: StoredState, reading: RecordReader
        ) -> GuestImport:
            claims.check_ready(state_of(states, node))
            return self._find_guests(state_of(states, node), reading, again)

        return self._runner.carry_out(OperationTarget(node), plan, searches=True).written()

    def preview_import(self, state: NodeState, again: Collection[ConsumerUuid] = ()) -> GuestImport:
        """Return what :meth:`import_guests` would find and write on a node in this state.

        :raises GuestsUnknown: the driver does not report guests.
        """
        with self._records.reading() as reading:
            return self._find_guests(state, reading, again)

    def _find_guests(
        self, state: NodeState, reading: RecordReader, again: Collection[ConsumerUuid]
    ) -> GuestImport:
        if state.host.guests is None:
            why = state.host.guests_incomplete
            raise GuestsUnknown(
                f"the guests of node {printable(state.node.name)} are unknown: "
                + (printable(why) if why else "its driver does not report guests"),
                "see why: agent status"
                if why
                else "such a driver's guests are known by their claims",
            )
        claimed = {guest: reading.claims_of(guest) for guest in again}
        consumers = reading.consumers([guest.uuid for guest in state.host.guests])
        return domains.import_guests(state, consumers, self._clock(), claimed)

    # --- views ------------------------------------------------------------------------------------

    def view(self, node: ProviderUuid) -> NodeState:
        """Return the current state of the node, with the changes of all processes.

        :raises TrackerError: the node is not managed here, or was not audited yet.
        """
        with lock_nodes(self._entries, [node]) as entries, self._records.reading() as reading:
            if node not in entries:
                raise self._runner.absence(node, reading)
            version = reading.node_versions([node]).get(node)
            return current_state(node, entries[node], reading, version)

    def nodes(self) -> list[ProviderUuid]:
        """Return the nodes of this host, whether audited since the agent started or not, sorted.

        :raises NodeNotReady: no node was ever audited, so that the nodes of this host are unknown.
        """
        with self._records.reading() as reading:
            found = {*self._entries, *reading.nodes_of(self._host)}
        if not found:
            raise nothing_audited()
        return sorted(found)

    def own(self, node: ProviderUuid) -> ProviderUuid:
        """Return the node if it is one of this host's.

        :raises TrackerError: it is not.
        """
        if node not in self._entries:
            with self._records.reading() as reading:
                if node not in reading.nodes_of(self._host):
                    raise self._runner.absence(node, reading)
        return node

    def name_in_memory(self, node: ProviderUuid) -> str | None:
        """Return the name of the node; None if it is not in memory now."""
        entry = self._entries.get(node)
        state = entry.state if entry is not None else None
        return None if state is None else state.node.name

    def states_in_memory(self) -> list[NodeState]:
        """Return the states in memory, without waiting; recent changes by other processes may be
        missing.
        """
        return [entry.state for entry in list(self._entries.values()) if entry.state is not None]


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
    records: Records,
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
        ConsumerRecords(records, host),
        NodeLeases(records, entries, settings.agent, clock),
        SharedLease(records, host, settings.agent.lease_seconds, clock),
        InstanceHosts(records, host),
    )
