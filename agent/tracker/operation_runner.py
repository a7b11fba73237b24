"""How an operation of the tracker is carried out: under the locks of its nodes, planned by a pure
function from the records, written in one transaction, and applied to the states in memory.

Under a node's lock there is no I/O but the store's. The search for a guest's resources is bounded
by counted steps, so that an operation waits at most for those that came to its node before it. What
has to search is planned before the transaction begins, so that no other node waits for it. Every
process that writes to a node's records raises the node's version: the transaction writes only what
was planned on the present versions.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from agent.errors import RecordConflict
from agent.model.names import ConsumerUuid, ProviderUuid, printable
from agent.model.node_records import RecordChanges
from agent.store.reading import RecordReader
from agent.store.records import Records
from agent.tracker.domains import GuestImport
from agent.tracker.errors import (
    NodeHeldElsewhere,
    NodeNotReady,
    ResourcesUndecided,
    TrackerError,
    UnknownClaim,
    UnknownNode,
)
from agent.tracker.node_entry import (
    ListedNodes,
    NodeEntry,
    current_state,
    lock_nodes,
    not_audited,
)
from agent.tracker.node_state import NodeState
from agent.tracker.stored_state import (
    ATTEMPTS,
    MoveClaim,
    OperationTarget,
    PlannedChange,
    StoredState,
    claimed_nodes,
    ends_of_move,
    nodes_of_instance,
)

LOG = logging.getLogger(__name__)

Answer = TypeVar("Answer", bound=RecordChanges | PlannedChange | GuestImport)
"""The changes of an operation, or what comes with them."""
Plan = Callable[[Mapping[ProviderUuid, NodeState], StoredState, RecordReader], Answer]
"""Pure function of the nodes' states, the stored state of the target, and further reads."""


@dataclass(frozen=True, slots=True)
class PlannedOperation(Generic[Answer]):
    """An operation that is planned and not written yet."""

    answer: Answer
    changes: RecordChanges
    versions: Mapping[ProviderUuid, int]
    """The versions that the nodes had to whose records the operation and its instance belong.
    Whoever changes any record of these nodes raises their versions.
    """
    states: Mapping[ProviderUuid, NodeState]
    """The states of the nodes once it is written."""


Attempted = PlannedOperation[Answer] | frozenset[ProviderUuid]
"""The operation; or the nodes that it concerns too, none if it was planned on records that have
changed, so that it has to be planned anew.
"""


class OperationRunner:
    """Carries out operations on the nodes of one host, one at a time per node. Threads may share
    it.
    """

    def __init__(
        self,
        records: Records,
        entries: Mapping[ProviderUuid, NodeEntry],
        listed: ListedNodes,
        changed: Callable[[ProviderUuid], None],
        host: str,
    ) -> None:
        """See :class:`agent.tracker.tracker.Tracker`."""
        self._records, self._entries, self._listed = records, entries, listed
        self._changed, self._host = changed, host

    def on_node(
        self,
        target: OperationTarget,
        plan: Callable[[NodeState, StoredState], Answer],
        *,
        searches: bool = False,
    ) -> Answer:
        """Carry out an operation that needs the state of the target's node, see
        :meth:`carry_out`.
        """
        node = target.node
        assert node is not None
        try:
            return self.carry_out(
                target,
                lambda states, stored, _: plan(state_of(states, node), stored),
                searches=searches,
            )
        except ResourcesUndecided as error:
            LOG.warning("node %s, instance %s: %s", node, target.instance, error.message)
            raise

    def carry_out(
        self,
        target: OperationTarget,
        plan: Plan[Answer],
        *,
        searches: bool = False,
    ) -> Answer:
        """Plan the operation, write its changes and apply them to the states in memory. Starts
        again if another process wrote first, or if it concerns more nodes than were known.

        ``searches``: whether ``plan`` may search for resources, which may take long.
        """
        nodes = self._nodes_of_target(target)
        for _ in range(ATTEMPTS):
            try:
                with lock_nodes(self._entries, nodes) as entries:
                    planned = self._attempt(target, plan, nodes, entries, searches=searches)
            except RecordConflict:
                continue
            if isinstance(planned, PlannedOperation):
                for uuid in planned.changes.touched & self._entries.keys():
                    self._changed(uuid)
                return planned.answer
            nodes |= planned
        raise RecordConflict(
            f"the records of nodes {', '.join(sorted(nodes))} change all the time", "try again"
        )

    def _attempt(
        self,
        target: OperationTarget,
        plan: Plan[Answer],
        nodes: frozenset[ProviderUuid],
        entries: Mapping[ProviderUuid, NodeEntry],
        *,
        searches: bool,
    ) -> Attempted[Answer]:
        """Plan an operation whose ``nodes`` are locked, write it, and apply it to the states of
        their ``entries``.

        :raises TrackerError: the operation is refused.
        """
        before: PlannedOperation[Answer] | None = None
        if searches:
            with self._records.reading() as reading:
                planned = _planned(target, plan, nodes, entries, reading)
            if not (isinstance(planned, PlannedOperation) and planned.changes):
                return planned
            before, nodes = planned, nodes.union(planned.versions)
        with _forgetting(entries), self._records.transaction(nodes) as transaction:
            if before is None:
                planned = _planned(target, plan, nodes, entries, transaction)
            elif transaction.node_versions(nodes) != before.versions:
                return frozenset()
            if isinstance(planned, PlannedOperation):
                # What belongs to no node, such as an instance that was never here, is guarded by
                # its own version.
                transaction.write(planned.changes)
        if isinstance(planned, PlannedOperation):
            for uuid, state in planned.states.items():
                entries[uuid].state = state
        return planned

    def _nodes_of_target(self, target: OperationTarget) -> frozenset[ProviderUuid]:
        """Return the nodes whose claims an operation may change, as far as known before it begins.

        :raises TrackerError: none of them is managed here.
        """
        if target.node is not None:
            if target.node not in self._entries:
                with self._records.reading() as reading:
                    raise self.absence(target.node, reading)
            return frozenset({target.node})
        # Taken before the store is read, because a node that is removed leaves the store first.
        mine = frozenset(self._entries)
        with self._records.reading() as reading:
            stored = read_stored_state(reading, target, held=False)
            nodes = claimed_nodes(stored)
            if not nodes:
                raise UnknownClaim(
                    f"no claim or move {target.claim}",
                    "see claims: agent claims; see moves: agent migrations",
                )
            either = nodes | ends_of_move(stored)
            # A node that was removed has no other agent that could be asked instead.
            removed = {
                uuid
                for uuid in either - mine
                if (found := reading.node(uuid)) is not None and found.deleted
            }
            if not either & (mine | removed):
                raise self._absence_of_all(either, reading)
        return nodes

    def node_of_instance(self, instance: ConsumerUuid) -> ProviderUuid:
        """Return the node of this host where an instance is, or has claims."""
        with self._records.reading() as reading:
            _, held, found = reading.subject(None, instance, None)
            there = [
                *([found.node] if found is not None and found.node is not None else []),
                *(claim.node for claim in held),
            ]
            mine = [uuid for uuid in there if uuid in self._entries]
            if there and not mine:
                # A node that only waits for its first audit may be the one.
                reason = self._absence_of_all(there, reading)
                if isinstance(reason, NodeNotReady):
                    raise reason
        if not mine and not self._entries:
            raise nothing_audited()
        return mine[0] if mine else next(iter(self._entries))

    def source_of_move(self, request: MoveClaim) -> ProviderUuid | None:
        """Return the node of this host from which a guest leaves for a host with a store of its
        own; None for a move that is on record already.

        :raises TrackerError: the guest leaves no node of this host; or the records of the
            destination are in this store, so that the agent of the destination has to be asked.
        """
        with self._records.reading() as reading:
            claim, held, recorded = reading.subject(request.id, request.instance.uuid, None)
            if claim is not None:
                return None
            if reading.node(request.node) is not None or (
                request.host is not None and reading.nodes_of(request.host)
            ):
                raise self.absence(request.node, reading)
            named = [
                instance.node
                for instance in (recorded, request.instance)
                if instance is not None and instance.node is not None
            ]
            there = [*(one.node for one in held), *named]
            if not (mine := [uuid for uuid in there if uuid in self._entries]):
                raise self._absence_of_all([*there, request.node], reading)
        return mine[0]

    def _absence_of_all(
        self, nodes: Collection[ProviderUuid], reading: RecordReader
    ) -> TrackerError:
        """Return the error that says why none of ``nodes`` can be used: one that passes, else one
        that names another host. A client may take an unknown node for a claim that has ended, and
        of a move between hosts with stores of their own only one end is on record here.
        """
        reasons = [self.absence(uuid, reading) for uuid in sorted(nodes)]
        return min(
            reasons,
            key=lambda error: (
                not isinstance(error, NodeNotReady),
                isinstance(error, UnknownNode),
            ),
        )

    def absence(self, node: ProviderUuid, reading: RecordReader) -> TrackerError:
        """Return the error that says why a node without a state in memory cannot be used."""
        found = reading.node(node)
        listed = self._listed.nodes
        if node in self._entries or ((found is None or found.deleted) and node in (listed or ())):
            # Its first audit has begun since memory was read, or is queued behind those of other
            # nodes.
            return not_audited(node)
        if found is None and not self._entries and listed is None:
            # A node that is not in the store yet may still be one of this host's.
            return nothing_audited()
        if found is None or found.deleted:
            return _unknown(node)
        if found.host == self._host:
            return NodeNotReady(
                f"node {node} was not audited since the agent started",
                "wait for its first audit; if that does not come, see why: agent status",
            )
        return NodeHeldElsewhere(
            f"node {node} is managed by host {printable(found.host)}", "ask the agent of that host"
        )


@contextmanager
def _forgetting(entries: Mapping[ProviderUuid, NodeEntry]) -> Iterator[None]:
    """Forget the states of the nodes if a transaction fails, because its commit may have succeeded
    although its answer was lost.
    """
    try:
        yield
    except TrackerError:
        raise
    except Exception:
        for entry in entries.values():
            entry.state = None
        raise


def _planned(
    target: OperationTarget,
    plan: Plan[Answer],
    nodes: frozenset[ProviderUuid],
    entries: Mapping[ProviderUuid, NodeEntry],
    reading: RecordReader,
) -> Attempted[Answer]:
    """Plan an operation whose ``nodes`` are locked, those of this host by their ``entries``.

    :raises TrackerError: the operation is refused.
    """
    stored = read_stored_state(reading, target)
    if more := claimed_nodes(stored) - nodes:
        return more
    places = nodes_of_instance(stored)
    versions = reading.node_versions(nodes.union(places))
    states = {
        uuid: current_state(uuid, entry, reading, versions.get(uuid))
        for uuid, entry in entries.items()
    }
    answer = plan(states, stored, reading)
    if changes := answer if isinstance(answer, RecordChanges) else answer.changes:
        changes = replace(changes, also_on=places)
        states = {uuid: state.after(changes, stored.instance) for uuid, state in states.items()}
    return PlannedOperation(answer, changes, versions, states)


def read_stored_state(
    reading: RecordReader, target: OperationTarget, *, held: bool = True
) -> StoredState:
    """Read the records of an operation's target. ``held``: with the devices and units of the
    claims.
    """
    claim, open_ones, found = reading.subject(target.claim, target.instance, target.node)
    migration = target.migration or (
        claim.origin
        if claim is not None
        else next((claim.migration for claim in open_ones if claim.migration), None)
    )
    devices, units = (
        reading.held_by([claim.id for claim in open_ones]) if held and open_ones else ((), ())
    )
    # An instance that has claims in this store has its host in this store too.
    hosts = {
        *target.hosts,
        *([found.host] if found is not None and found.host is not None and not open_ones else []),
    }
    strange = frozenset(host for host in hosts if not reading.nodes_of(host))
    return StoredState(
        found,
        reading.migration(migration) if migration else None,
        claim,
        open_ones,
        devices,
        units,
        strange,
    )


def state_of(states: Mapping[ProviderUuid, NodeState], node: ProviderUuid) -> NodeState:
    """Return the state of the node.

    :raises UnknownNode: the node is not among ``states``.
    """
    if node not in states:
        raise _unknown(node)
    return states[node]


def nothing_audited() -> NodeNotReady:
    """Return the error of an agent that has audited no node yet."""
    return NodeNotReady("no node was audited yet", "try again in a minute")


def _unknown(node: ProviderUuid) -> UnknownNode:
    return UnknownNode(f"no node {node} here", "see the nodes of this host: agent status")
