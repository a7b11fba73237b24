"""Tracker: the operations on the claims of this host's nodes, one at a time per node.

An operation is planned by a pure function, written in one transaction, and then applied to the
state in memory. Under a node's lock there is no I/O but the store's, and no long search (see
:mod:`agent.tracker.planning`). Every process that writes to a node's records raises the node's
    version, so that a state in memory that is out of date is noticed and read again.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from agent.errors import RecordConflict
from agent.model.claim import HALVES, Half
from agent.model.devices import DEVICE_STATES, DeviceState
from agent.model.instance import Instance
from agent.model.migration import STATUSES, MigrationStatus
from agent.model.names import ConsumerUuid, ProviderUuid, printable
from agent.model.node_records import RecordChanges
from agent.numa.request import overlooked
from agent.tracker import claims, guest_import, moves, updates
from agent.tracker.errors import (
    GuestsUntold,
    NodeHeldElsewhere,
    NodeNotReady,
    ResourcesUndecided,
    TrackerError,
    UnknownClaim,
    UnknownNode,
)
from agent.tracker.guest_import import GuestImport
from agent.tracker.node_entry import Listed, NodeEntry, locked
from agent.tracker.node_state import NodeState
from agent.tracker.planning import ClaimPlanner, LocklessPlanner, NotPlannedYet
from agent.tracker.record_store import RecordReads, RecordStore
from agent.tracker.request_checks import check_claim, check_update, one_of, raise_all
from agent.tracker.requests import DeviceClaim, InstanceClaim, MoveClaim
from agent.tracker.reservations import cleaned
from agent.tracker.stored_state import (
    OperationTarget,
    PlannedChange,
    StoredState,
    concerned,
    ends,
    places,
    read_stored_state,
)
from agent.tracker.updates import BUILD_RESULTS, BuildResult, InstanceUpdate

LOG = logging.getLogger(__name__)

ATTEMPTS = 10
# How often a long search is made without the node's lock before the operation makes it under the
# lock, so that the other operations on the node wait.
PATIENCE = 3

Answer = TypeVar("Answer")
Clock = Callable[[], float]
"""Returns the time in seconds since the epoch."""
Plan = Callable[[Mapping[ProviderUuid, NodeState], StoredState, RecordReads], Answer]
"""Pure function of the nodes' states, the stored state of the target, and further reads."""


@dataclass(frozen=True, slots=True)
class _Done(Generic[Answer]):
    """An operation that was carried out, with its answer and the changes that were written."""

    answer: Answer
    changes: RecordChanges


class Tracker:
    """The claims of the nodes of one host. Threads may share it."""

    def __init__(
        self,
        records: RecordStore,
        entries: Mapping[ProviderUuid, NodeEntry],
        listed: Listed,
        clock: Clock,
        changed: Callable[[ProviderUuid], None],
        host: str,
    ) -> None:
        """``entries``: the nodes that were audited, by uuid. ``listed``: the nodes that the driver
        listed last. ``changed``: called with each node on which resources were promised or given
        back, after the change is durable. ``host``: this host's name.
        """
        self._records, self._entries, self._listed, self._clock, self._changed, self._host = (
            records,
            entries,
            listed,
            clock,
            changed,
            host,
        )

    # --- claims of guests and devices -------------------------------------------------------------

    def claim(self, request: InstanceClaim) -> PlannedChange:
        """Claim resources for a new guest.

        :raises TrackerError: the claim is denied; nothing was written.
        """
        check_claim(request)
        subject = OperationTarget(request.node, request.instance.uuid, request.id)
        planned = self._on_node(
            subject,
            lambda state, known, planning: claims.claim_instance(
                state, known, request, self._clock(), planning
            ),
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
            states: Mapping[ProviderUuid, NodeState], known: StoredState, _: RecordReads
        ) -> PlannedChange:
            if known.claim is not None and known.claim.purpose == "move":
                return moves.abort(known, self._clock())
            there = states.get(known.claim.node) if known.claim is not None else None
            return claims.abort_claim(
                known, self._clock(), there.host.guests or () if there is not None else ()
            )

        return self._carried_out(
            OperationTarget(claim=claim), plan, lambda planned: planned.changes
        )

    def claim_devices(self, request: DeviceClaim) -> PlannedChange:
        """Claim devices for a guest of this node.

        :raises TrackerError: the claim is denied; nothing was written.
        """
        check_claim(request)
        subject = OperationTarget(request.node, request.instance, request.id)
        return self._on_node(
            subject,
            lambda state, known, planning: claims.claim_devices(
                state, known, request, self._clock(), planning
            ),
        )

    def allocate_devices(self, claim: str) -> PlannedChange:
        """Record that the claimed devices are in use; harmless when repeated.

        :raises TrackerError: there is no such claim, or it was given back.
        """
        return self._on_claim(claim, lambda known: claims.allocate_devices(known, self._clock()))

    def free_devices(
        self, node: ProviderUuid, instance: ConsumerUuid, only: DeviceState | None
    ) -> int:
        """Free the devices that the guest has on the node beside those of its own claim.

        ``only``: free the devices in this state only. Returns the number of devices.

        :raises TrackerError: the node is not managed here.
        """
        raise_all(one_of("state", only, DEVICE_STATES) if only is not None else ())
        subject = OperationTarget(node, instance)
        changes = self._changing(
            subject, lambda state, known: claims.free_devices_of(state, known, only, self._clock())
        )
        return len(changes.devices) + len(changes.dropped_devices)

    def clean(self, node: ProviderUuid, address: str) -> bool:
        """Record that a device was cleaned, and free the reserved devices of its card.

        Returns whether a device was reserved.

        :raises TrackerError: the node is not managed here, it has no such device, or a guest has
            the device.
        """
        return bool(
            self._changing(OperationTarget(node), lambda state, _: cleaned(state.devices, address))
        )

    # --- moves ------------------------------------------------------------------------------------

    def claim_move(self, request: MoveClaim) -> PlannedChange:
        """Claim resources for a guest that moves to this host or is resized on it; or record that a
        guest of this host leaves for another one.

        :raises TrackerError: the claim is denied; nothing was written.
        """
        check_claim(request)
        migration = (
            request.migration.uuid if request.migration is not None else ConsumerUuid(request.id)
        )
        hosts = frozenset([request.instance.host] if request.instance.host is not None else [])
        subject = OperationTarget(request.node, request.instance.uuid, request.id, migration, hosts)
        if request.node in self._entries:
            return self._on_node(
                subject,
                lambda state, known, planning: moves.claim_move(
                    state, known, request, self._clock(), planning
                ),
            )
        if (source := self._source_of(request)) is None:
            return self._on_claim(
                request.id, lambda known: moves.repeat(known, request, self._host)
            )
        return self._on_node(
            replace(subject, node=source),
            lambda state, known, _: moves.leave(state, known, request, self._clock()),
        )

    def _source_of(self, request: MoveClaim) -> ProviderUuid | None:
        """Return the node of this host from which a guest leaves for a host with a store of its
        own; None for a move that is on record already.

        :raises TrackerError: the guest leaves no node of this host; or the records of the
            destination are in this store, so that the agent of the destination has to be asked.
        """
        with self._records.reading() as reading:
            if reading.claim(request.id) is not None:
                return None
            if reading.node(request.node) is not None or (
                request.host is not None and reading.nodes_of(request.host)
            ):
                raise self._absent(request.node, reading)
            found, held = (
                reading.instance(request.instance.uuid),
                reading.claims_of(request.instance.uuid),
            )
            said = [
                one.node
                for one in (found, request.instance)
                if one is not None and one.node is not None
            ]
            there = [*(one.node for one in held), *said]
            if not (mine := [uuid for uuid in there if uuid in self._entries]):
                self._check_audited(there, reading)
                raise self._absent(request.node, reading)
        return mine[0]

    def finish(self, move: str) -> PlannedChange:
        """Record that the guest has arrived at the destination.

        :raises TrackerError: there is no such move, or it was aborted.
        """
        return self._on_claim(move, lambda known: moves.finish(known, self._clock()))

    def confirm(self, move: str) -> PlannedChange:
        """Keep the guest at the destination, and free the source.

        :raises TrackerError: there is no such move, or the guest has not arrived.
        """
        return self._on_claim(move, lambda known: moves.confirm(known, self._clock()))

    def revert(self, move: str) -> PlannedChange:
        """Send the guest back to the source, and free the destination.

        :raises TrackerError: there is no such move, or the instance is not about to go back.
        """
        return self._on_claim(move, lambda known: moves.revert(known, self._clock()))

    def progress(self, move: str, status: MigrationStatus) -> PlannedChange:
        """Record that the move has reached ``status``; harmless when repeated.

        :raises TrackerError: there is no such move, it has ended, or it is past that status.
        """
        raise_all(one_of("status", status, STATUSES))
        return self._on_claim(move, lambda known: moves.progress(known, status, self._clock()))

    def drop_half(self, move: str, half: Half) -> PlannedChange:
        """Give back one half of a move, at its source or at its destination, and nothing else;
        harmless when repeated.

        :raises TrackerError: there is no such move.
        """
        raise_all(one_of("half", half, HALVES))
        return self._on_claim(move, lambda known: moves.drop_half(known, half, self._clock()))

    def drop(
        self, node: ProviderUuid, instance: ConsumerUuid, migration: ConsumerUuid, half: Half
    ) -> RecordChanges:
        """Give back one half of the move of an instance on a node, and nothing else.

        :raises TrackerError: the node is not managed here.
        """
        raise_all(one_of("half", half, HALVES))
        return self._changing(
            OperationTarget(node, instance, migration=migration),
            lambda _, known: moves.drop(known, migration, half, self._clock()),
        )

    # --- instances and builds ---------------------------------------------------------------------

    def update(self, instance: ConsumerUuid, update: InstanceUpdate) -> Instance:
        """Record an instance's new state; an instance that is deleted gives back all its resources.

        :raises TrackerError: the instance is not here, or was changed since it was read.
        """
        check_update(update)
        node = self._node_of(instance)

        def plan(
            states: Mapping[ProviderUuid, NodeState], known: StoredState, reading: RecordReads
        ) -> RecordChanges:
            return updates.update_instance(
                _of(states, node),
                known,
                update,
                self._clock(),
                reading.consumers([instance]).migrations.values(),
            )

        self._carried_out(OperationTarget(node, instance), plan, lambda changes: changes)
        with self._records.reading() as reading:
            found = reading.instance(instance)
        assert found is not None
        return found

    def forget(self, instance: ConsumerUuid) -> Instance:
        """End the record of a guest that is gone from its hypervisor; harmless when repeated.

        :raises TrackerError: the instance is not here, it moves, or the hypervisor shows the guest
            or may still have it.
        """
        node = self._node_of(instance)

        def plan(
            states: Mapping[ProviderUuid, NodeState], known: StoredState, reading: RecordReads
        ) -> RecordChanges:
            return updates.forget_guest(
                _of(states, node),
                known,
                self._clock(),
                reading.consumers([instance]).migrations.values(),
            )

        self._carried_out(OperationTarget(node, instance), plan, lambda changes: changes)
        with self._records.reading() as reading:
            found = reading.instance(instance)
        assert found is not None
        return found

    def count_build(self, node: ProviderUuid, result: BuildResult) -> int:
        """Count the failed builds in a row, and return their number.

        :raises TrackerError: the node is not managed here.
        """
        raise_all(one_of("result", result, BUILD_RESULTS))
        self._changing(
            OperationTarget(node),
            lambda state, _: updates.count_build(state, result, self._clock()),
        )
        return self.view(node).node.failed_builds

    # --- guests that are there already ------------------------------------------------------------

    def import_guests(self, node: ProviderUuid) -> GuestImport:
        """Build records of all guests that the node's last audit saw and that no record knows,
        where that is possible; harmless when repeated.

        :raises TrackerError: the node is not managed here or not ready, or its driver does not
            report guests; nothing was written.
        """

        def plan(
            states: Mapping[ProviderUuid, NodeState], _: StoredState, reading: RecordReads
        ) -> GuestImport:
            claims.check_ready(_of(states, node))
            return self._imported(_of(states, node), reading)

        return self._carried_out(OperationTarget(node), plan, lambda found: found.changes).written()

    def foreseen_import(self, state: NodeState) -> GuestImport:
        """Return what :meth:`import_guests` would find and write on a node in this state.

        :raises GuestsUntold: the driver does not report guests.
        """
        with self._records.reading() as reading:
            return self._imported(state, reading)

    def _imported(self, state: NodeState, reading: RecordReads) -> GuestImport:
        if state.host.guests is None:
            why = state.host.guests_untold or "its driver does not tell of any"
            raise GuestsUntold(
                f"nobody knows the guests of node {printable(state.node.name)}: {printable(why)}",
                "see agent status",
            )
        return guest_import.import_guests(
            state, reading.consumers([one.uuid for one in state.host.guests]), self._clock()
        )

    # --- views ------------------------------------------------------------------------------------

    def view(self, node: ProviderUuid) -> NodeState:
        """Return the current state of the node, with the changes of all processes.

        :raises TrackerError: the node is not managed here, or was not audited yet.
        """
        with locked(self._entries, [node]) as entries, self._records.reading() as reading:
            if node not in entries:
                raise self._absent(node, reading)
            return self._current(node, entries[node], reading)

    def nodes(self) -> list[ProviderUuid]:
        """Return the nodes of this host, whether audited since the agent started or not, sorted.

        :raises NodeNotReady: no node was ever audited, so that the nodes of this host are unknown.
        """
        with self._records.reading() as reading:
            found = {*self._entries, *reading.nodes_of(self._host)}
        if not found:
            raise _nothing_audited()
        return sorted(found)

    def own(self, node: ProviderUuid) -> ProviderUuid:
        """Return the node if it is one of this host's.

        :raises TrackerError: it is not.
        """
        if node not in self._entries:
            with self._records.reading() as reading:
                if node not in reading.nodes_of(self._host):
                    raise self._absent(node, reading)
        return node

    def remembered(self) -> list[NodeState]:
        """Return the states in memory, without waiting; recent changes by other processes may be
        missing.
        """
        return [entry.state for entry in list(self._entries.values()) if entry.state is not None]

    # --- how an operation is carried out ----------------------------------------------------------

    def _on_node(
        self,
        subject: OperationTarget,
        plan: Callable[[NodeState, StoredState, ClaimPlanner], PlannedChange],
    ) -> PlannedChange:
        """Carry out an operation that needs the node's state."""
        node, ahead = subject.node, LocklessPlanner()
        assert node is not None
        try:
            return self._carried_out(
                subject,
                lambda states, known, _: plan(_of(states, node), known, ahead),
                lambda planned: planned.changes,
                ahead,
            )
        except ResourcesUndecided as error:
            LOG.warning("node %s, instance %s: %s", node, subject.instance, error.message)
            raise

    def _on_claim(self, claim: str, plan: Callable[[StoredState], PlannedChange]) -> PlannedChange:
        """Carry out an operation on a claim; the claim's record names the node."""
        return self._carried_out(
            OperationTarget(claim=claim),
            lambda _, known, __: plan(known),
            lambda planned: planned.changes,
        )

    def _changing(
        self, subject: OperationTarget, plan: Callable[[NodeState, StoredState], RecordChanges]
    ) -> RecordChanges:
        """Carry out an operation whose answer is the list of its changes."""
        node = subject.node
        assert node is not None
        return self._carried_out(
            subject,
            lambda states, known, _: plan(_of(states, node), known),
            lambda changes: changes,
        )

    def _carried_out(
        self,
        subject: OperationTarget,
        plan: Plan[Answer],
        changes_of: Callable[[Answer], RecordChanges],
        ahead: LocklessPlanner | None = None,
    ) -> Answer:
        """Plan the operation, write its changes and apply them to the states in memory.

        Starts again if another process wrote first, or if a long search had to be made without the
        lock (``ahead``).
        """
        nodes = self._nodes_of(subject)
        with ExitStack() as turn:
            for _ in range(ATTEMPTS):
                with locked(self._entries, nodes) as entries:
                    outcome = self._attempt(entries, nodes, subject, plan, changes_of)
                    if (
                        isinstance(outcome, NotPlannedYet)
                        and ahead is not None
                        and ahead.count >= PATIENCE
                    ):
                        # Other operations changed the node each time. Now the search is made under
                        # the lock, and they wait, as operations on one node do for each other.
                        ahead.work_out(outcome)
                        outcome = self._attempt(entries, nodes, subject, plan, changes_of)
                if isinstance(outcome, _Done):
                    for uuid in outcome.changes.touched & self._entries.keys():
                        self._changed(uuid)
                    return outcome.answer
                if isinstance(outcome, frozenset):
                    nodes |= outcome
                elif isinstance(outcome, NotPlannedYet) and ahead is not None:
                    self._work_out(outcome, ahead, turn)
        raise RecordConflict(
            f"the records of nodes {', '.join(sorted(nodes))} change all the time", "try again"
        )

    def _work_out(self, missing: NotPlannedYet, ahead: LocklessPlanner, turn: ExitStack) -> None:
        """Make the missing search, with no lock held, in this claim's ``turn`` on the node."""
        entry = self._entries.get(missing.state.node.uuid)
        if entry is not None and not ahead.in_turn:
            turn.enter_context(entry.turn)
            ahead.in_turn = True
            if entry.state is not missing.state:
                # The claim that had its turn before has changed the node.
                return
        ahead.work_out(missing)

    def _attempt(
        self,
        entries: Mapping[ProviderUuid, NodeEntry],
        nodes: frozenset[ProviderUuid],
        subject: OperationTarget,
        plan: Plan[Answer],
        changes_of: Callable[[Answer], RecordChanges],
    ) -> "_Done[Answer] | frozenset[ProviderUuid] | NotPlannedYet | None":
        """Plan, write and apply once, with the nodes locked.

        Returns, instead of the answer, the search that has to be made first, the other nodes that
        are concerned, or None for a conflict.
        """
        try:
            with self._records.transaction(nodes) as transaction:
                known = read_stored_state(transaction, subject)
                if not (more := places(known)) <= nodes:
                    return more
                states = {
                    uuid: self._current(uuid, entry, transaction) for uuid, entry in entries.items()
                }
                answer = plan(states, known, transaction)
                if changes := changes_of(answer):
                    changes = replace(changes, also_on=concerned(known))
                    transaction.write(changes)
        except RecordConflict:
            self._forget(nodes)
            return None
        except NotPlannedYet as missing:
            return missing
        except TrackerError:
            raise
        except Exception:
            # The commit may have succeeded although its answer was lost.
            self._forget(nodes)
            raise
        for uuid, state in states.items():
            entries[uuid].state = state.after(changes, known.instance) if changes else state
        return _Done(answer, changes)

    def _nodes_of(self, subject: OperationTarget) -> frozenset[ProviderUuid]:
        """Return the nodes whose claims an operation may change, as far as known before it begins.

        :raises TrackerError: none of them is managed here.
        """
        if subject.node is not None:
            if subject.node not in self._entries:
                with self._records.reading() as reading:
                    raise self._absent(subject.node, reading)
            return frozenset({subject.node})
        # Taken before the store is read, because a node that is removed leaves the store first.
        mine = frozenset(self._entries)
        with self._records.reading() as reading:
            known = read_stored_state(reading, subject, held=False)
            nodes = places(known)
            if not nodes:
                raise UnknownClaim(
                    f"no claim or move {subject.claim}", "see agent claims and agent migrations"
                )
            either = nodes | ends(known)
            # A node that was removed has no other agent that could be asked instead.
            removed = {
                uuid
                for uuid in either - mine
                if (found := reading.node(uuid)) is not None and found.deleted
            }
            if not either & (mine | removed):
                self._check_audited(either, reading)
                raise UnknownNode(
                    (
                        f"claim {subject.claim} is on node {', '.join(sorted(nodes))}, which is "
                        "not managed here"
                    ),
                    "ask the agent of its host",
                )
        return nodes

    def _node_of(self, instance: ConsumerUuid) -> ProviderUuid:
        """Return the node of this host where an instance is, or has claims."""
        with self._records.reading() as reading:
            found, held = reading.instance(instance), reading.claims_of(instance)
            there = [
                *([found.node] if found is not None and found.node is not None else []),
                *(one.node for one in held),
            ]
            if not (mine := [uuid for uuid in there if uuid in self._entries]):
                self._check_audited(there, reading)
        if not mine and not self._entries:
            raise _nothing_audited()
        return mine[0] if mine else next(iter(self._entries))

    def _check_audited(self, nodes: Collection[ProviderUuid], reading: RecordReads) -> None:
        """Check that none of ``nodes``, which have no state in memory, only waits for its first
        audit.

        :raises NodeNotReady: one of them does, because the agent has just started.
        """
        for uuid in sorted(nodes):
            if isinstance(reason := self._absent(uuid, reading), NodeNotReady):
                raise reason

    def _absent(self, node: ProviderUuid, reading: RecordReads) -> TrackerError:
        """Return the error that says why a node without a state in memory cannot be used."""
        found = reading.node(node)
        listed = self._listed.nodes
        if node in self._entries or ((found is None or found.deleted) and node in (listed or ())):
            # Its first audit has begun since memory was read, or is queued behind those of other
            # nodes.
            return _not_audited(node)
        if found is None and not self._entries and listed is None:
            # A node that is not in the store yet may still be one of this host's.
            return _nothing_audited()
        if found is None or found.deleted:
            return _unknown(node)
        if found.host == self._host:
            return NodeNotReady(
                f"node {node} was not audited since the agent started",
                "wait for its first audit; see agent status if that does not come",
            )
        return NodeHeldElsewhere(
            f"node {node} is managed by host {printable(found.host)}", "ask the agent of that host"
        )

    def _current(self, node: ProviderUuid, entry: NodeEntry, reading: RecordReads) -> NodeState:
        """Return the node's state, read again if its version in the store is another than in
        memory.

        :raises TrackerError: the node is not managed here yet, or not any more.
        """
        if entry.agent is None:
            raise _not_audited(node)
        state = entry.state
        if state is None or reading.node_versions([node]).get(node) != state.node.version:
            records = reading.load(node)
            if records is None:
                raise NodeNotReady(f"node {node} has no record any more", "wait for its next audit")
            state = entry.state = NodeState.of(records, entry.host)
        if state.node.host != entry.agent:
            raise NodeHeldElsewhere(
                f"node {node} was taken over by host {printable(state.node.host)}",
                "ask the agent of that host",
            )
        return state

    def _forget(self, nodes: Collection[ProviderUuid]) -> None:
        for uuid in nodes:
            if uuid in self._entries:
                self._entries[uuid].state = None


def _of(states: Mapping[ProviderUuid, NodeState], node: ProviderUuid) -> NodeState:
    if node not in states:
        raise _unknown(node)
    return states[node]


def _nothing_audited() -> NodeNotReady:
    return NodeNotReady("no node was audited yet", "try again in a minute")


def _not_audited(node: ProviderUuid) -> NodeNotReady:
    return NodeNotReady(
        f"node {node} was not audited yet",
        "wait for its first audit; see agent status if that does not come",
    )


def _unknown(node: ProviderUuid) -> UnknownNode:
    return UnknownNode(f"no node {node} here", "see agent status for the nodes of this host")
