"""The tracker: every operation on the claims of this host's nodes, one at a time a node.

An operation is planned purely, written in one transaction, and then swapped into memory; there is
no I/O but the store under a node's lock, and no long search (see :mod:`agent.tracker.planning`).
Whoever else wrote to a node's records has raised the node's version, so that it is read again.
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
# So often a plan that takes long is made with nothing held, before others of the node wait for it.
PATIENCE = 3

Answer = TypeVar("Answer")
Clock = Callable[[], float]
Plan = Callable[[Mapping[ProviderUuid, NodeState], StoredState, RecordReads], Answer]


@dataclass(frozen=True, slots=True)
class _Done(Generic[Answer]):
    """An operation that was carried out, and what it changed."""

    answer: Answer
    changes: RecordChanges


class Tracker:
    """The claims of the nodes of one host. Threads may share it.

    ``entries``: the nodes that were audited, by uuid. ``listed``: those that will be. ``changed``:
    called with each node of which something was promised or given back, after that is durable.
    ``host``: this host's name.
    """

    def __init__(
        self,
        records: RecordStore,
        entries: Mapping[ProviderUuid, NodeEntry],
        listed: Listed,
        clock: Clock,
        changed: Callable[[ProviderUuid], None],
        host: str,
    ) -> None:
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
        """Claim room for a new guest.

        :raises TrackerError: it cannot be had; nothing was written.
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
        """Give back what a claim of a guest, a move or devices got; harmless when repeated.

        :raises TrackerError: there is no such claim, or what it was made for has happened.
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
        """Claim devices for a guest that is here.

        :raises TrackerError: they cannot be had; nothing was written.
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
        """The claimed devices are in use; harmless when repeated.

        :raises TrackerError: there is no such claim, or it was given back.
        """
        return self._on_claim(claim, lambda known: claims.allocate_devices(known, self._clock()))

    def free_devices(
        self, node: ProviderUuid, instance: ConsumerUuid, only: DeviceState | None
    ) -> int:
        """Free what the guest got beside its claim on the node, ``only`` in that state. Returns how
        many devices.

        :raises TrackerError: the node is not ours.
        """
        raise_all(one_of("state", only, DEVICE_STATES) if only is not None else ())
        subject = OperationTarget(node, instance)
        changes = self._changing(
            subject, lambda state, known: claims.free_devices_of(state, known, only, self._clock())
        )
        return len(changes.devices) + len(changes.dropped_devices)

    def clean(self, node: ProviderUuid, address: str) -> bool:
        """Somebody has cleaned a device; what is reserved of its card is given free. Returns
        whether there was anything to do.

        :raises TrackerError: the node is not ours, it has no such device, or a guest has it.
        """
        return bool(
            self._changing(OperationTarget(node), lambda state, _: cleaned(state.devices, address))
        )

    # --- moves ------------------------------------------------------------------------------------

    def claim_move(self, request: MoveClaim) -> PlannedChange:
        """Claim room for a guest that comes here, or gets another flavor here; or take note that a
        guest of this host goes elsewhere.

        :raises TrackerError: it cannot be; nothing was written.
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
        """The node of ours that a guest leaves for a host with a store of its own; None for a move
        that is on record already.

        :raises TrackerError: it leaves none of ours, or its destination's records are here, so that
            the agent there has to be asked.
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
        """The guest has arrived at the destination.

        :raises TrackerError: there is no such move, or it was given up.
        """
        return self._on_claim(move, lambda known: moves.finish(known, self._clock()))

    def confirm(self, move: str) -> PlannedChange:
        """The guest stays at the destination; the source is free.

        :raises TrackerError: there is no such move, or it has not arrived.
        """
        return self._on_claim(move, lambda known: moves.confirm(known, self._clock()))

    def revert(self, move: str) -> PlannedChange:
        """The guest goes back to the source; the destination is free.

        :raises TrackerError: there is no such move, or the instance is not about to go back.
        """
        return self._on_claim(move, lambda known: moves.revert(known, self._clock()))

    def progress(self, move: str, status: MigrationStatus) -> PlannedChange:
        """The move has come as far as ``status``; harmless when repeated.

        :raises TrackerError: there is no such move, it is over, or has come further.
        """
        raise_all(one_of("status", status, STATUSES))
        return self._on_claim(move, lambda known: moves.progress(known, status, self._clock()))

    def drop_half(self, move: str, half: Half) -> PlannedChange:
        """Give the half of a move back that is at its source, or at its destination, and nothing
        else; harmless when repeated.

        :raises TrackerError: there is no such move.
        """
        raise_all(one_of("half", half, HALVES))
        return self._on_claim(move, lambda known: moves.drop_half(known, half, self._clock()))

    def drop(
        self, node: ProviderUuid, instance: ConsumerUuid, migration: ConsumerUuid, half: Half
    ) -> RecordChanges:
        """Give one half of a move back, and nothing else.

        :raises TrackerError: the node is not ours.
        """
        raise_all(one_of("half", half, HALVES))
        return self._changing(
            OperationTarget(node, instance, migration=migration),
            lambda _, known: moves.drop(known, migration, half, self._clock()),
        )

    # --- instances and builds ---------------------------------------------------------------------

    def update(self, instance: ConsumerUuid, update: InstanceUpdate) -> Instance:
        """Take note of a guest's new state; one that is gone gives everything back.

        :raises TrackerError: it is not here, or somebody changed it since.
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

        :raises TrackerError: it is not here, it moves, or the hypervisor shows it, or may.
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
        """Count failed builds in a row. Returns how many there are now.

        :raises TrackerError: the node is not ours.
        """
        raise_all(one_of("result", result, BUILD_RESULTS))
        self._changing(
            OperationTarget(node),
            lambda state, _: updates.count_build(state, result, self._clock()),
        )
        return self.view(node).node.failed_builds

    # --- guests that are there already ------------------------------------------------------------

    def import_guests(self, node: ProviderUuid) -> GuestImport:
        """Make records of the guests that the node's last audit has seen and no record knows, all
        that can be; harmless when repeated.

        :raises TrackerError: the node is not ours or not ready, or its driver does not tell of
            guests; nothing was written.
        """

        def plan(
            states: Mapping[ProviderUuid, NodeState], _: StoredState, reading: RecordReads
        ) -> GuestImport:
            claims.check_ready(_of(states, node))
            return self._imported(_of(states, node), reading)

        return self._carried_out(OperationTarget(node), plan, lambda found: found.changes).written()

    def foreseen_import(self, state: NodeState) -> GuestImport:
        """What :meth:`import_guests` would find and write on a node in this state.

        :raises GuestsUntold: its driver does not tell of guests.
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
        """The node as it is now, whoever changed it last.

        :raises TrackerError: it is not ours, or was not audited yet.
        """
        with locked(self._entries, [node]) as entries, self._records.reading() as reading:
            if node not in entries:
                raise self._absent(node, reading)
            return self._current(node, entries[node], reading)

    def nodes(self) -> list[ProviderUuid]:
        """The nodes of this host, audited since it started or not.

        :raises NodeNotReady: nothing was ever audited, so that nobody knows which they are.
        """
        with self._records.reading() as reading:
            found = {*self._entries, *reading.nodes_of(self._host)}
        if not found:
            raise _nothing_audited()
        return sorted(found)

    def own(self, node: ProviderUuid) -> ProviderUuid:
        """That node, if it is one of this host's.

        :raises TrackerError: it is not.
        """
        if node not in self._entries:
            with self._records.reading() as reading:
                if node not in reading.nodes_of(self._host):
                    raise self._absent(node, reading)
        return node

    def remembered(self) -> list[NodeState]:
        """The nodes as memory has them, at once; what other processes wrote since may
        be missing.
        """
        return [entry.state for entry in list(self._entries.values()) if entry.state is not None]

    # --- how an operation is carried out ----------------------------------------------------------

    def _on_node(
        self,
        subject: OperationTarget,
        plan: Callable[[NodeState, StoredState, ClaimPlanner], PlannedChange],
    ) -> PlannedChange:
        """An operation that needs to know what a node has."""
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
        """An operation on a claim, which says itself where it is."""
        return self._carried_out(
            OperationTarget(claim=claim),
            lambda _, known, __: plan(known),
            lambda planned: planned.changes,
        )

    def _changing(
        self, subject: OperationTarget, plan: Callable[[NodeState, StoredState], RecordChanges]
    ) -> RecordChanges:
        """An operation that answers with nothing but what it changed."""
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
        """Plan, write, swap; anew if somebody else was faster, or if something had to be worked out
        ``ahead``.
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
                        # Others came between each time; now those of this node wait, as they do for
                        # each other.
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
        """Work it out when it is this claim's ``turn`` on the node, with nothing else held."""
        entry = self._entries.get(missing.state.node.uuid)
        if entry is not None and not ahead.in_turn:
            turn.enter_context(entry.turn)
            ahead.in_turn = True
            if entry.state is not missing.state:
                # Whose turn it was before has changed the node.
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
        """Plan, write, swap, with the nodes locked. Else what to work out before, the nodes that
        are concerned too, or None for a conflict.
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
            # The commit may have come through although its answer did not.
            self._forget(nodes)
            raise
        for uuid, state in states.items():
            entries[uuid].state = state.after(changes, known.instance) if changes else state
        return _Done(answer, changes)

    def _nodes_of(self, subject: OperationTarget) -> frozenset[ProviderUuid]:
        """The nodes whose claims an operation may change, as far as can be told before it begins.

        :raises TrackerError: none of them is ours.
        """
        if subject.node is not None:
            if subject.node not in self._entries:
                with self._records.reading() as reading:
                    raise self._absent(subject.node, reading)
            return frozenset({subject.node})
        # Before the store is read, because a node that is removed leaves the store first.
        mine = frozenset(self._entries)
        with self._records.reading() as reading:
            known = read_stored_state(reading, subject, held=False)
            nodes = places(known)
            if not nodes:
                raise UnknownClaim(
                    f"no claim or move {subject.claim}", "see agent claims and agent migrations"
                )
            either = nodes | ends(known)
            # A node that was removed has no agent any more that could be asked instead.
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
        """The node of ours where an instance is, or has something."""
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
        """Of nodes of which memory has nothing, whether that is only because the agent has just
        started.

        :raises NodeNotReady: so it is of one of them.
        """
        for uuid in sorted(nodes):
            if isinstance(reason := self._absent(uuid, reading), NodeNotReady):
                raise reason

    def _absent(self, node: ProviderUuid, reading: RecordReads) -> TrackerError:
        """Why nothing can be done on a node of which memory has nothing."""
        found = reading.node(node)
        listed = self._listed.nodes
        if node in self._entries or ((found is None or found.deleted) and node in (listed or ())):
            # Its first audit has begun since memory was asked, or others come before it.
            return _not_audited(node)
        if found is None and not self._entries and listed is None:
            # One that is new to the store may be ours all the same.
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
        """The node's state, read again if it is not what memory has.

        :raises TrackerError: it is not ours yet, or not any more.
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
