"""A node's entry in memory: its lock, its state, and what its last audit found of the host."""

import threading
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from agent.deadline import DeadlinePassed, acquired
from agent.model.facts import HostFacts
from agent.model.names import ProviderUuid, printable
from agent.model.node_records import Lease
from agent.model.provider_tree import ProviderTree
from agent.store.reading import RecordReader
from agent.tracker.errors import NodeHeldElsewhere, NodeNotReady
from agent.tracker.node_record import RENEWED_AT, Agent, HostCapacity, is_ours
from agent.tracker.node_state import NodeState, NodeView


class FairLock:
    """A lock that is not reentrant and is handed over in the order of arrival.

    The thread that releases the lock hands it to the thread that waits longest, so that no other
    thread can take it in between.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._held = False
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        """Acquire the lock.

        :raises DeadlinePassed: it was not this thread's turn in time.
        """
        with self._mutex:
            if not self._held:
                self._held = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        # ``turn`` is released when this thread has the lock.
        if not acquired(turn):
            with self._mutex:
                # Unless the lock was handed to this thread after the wait ended.
                if turn in self._waiting:
                    self._waiting.remove(turn)
                    raise DeadlinePassed("the node, with which others are busy,")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._held = False


@dataclass(frozen=True, slots=True)
class IdleCount:
    """A count that found nothing to change or to report."""

    view: NodeView
    facts: HostFacts
    """With these records no result depends on the time at which the facts were taken."""
    present: ProviderTree
    """The node's tree in Placement."""
    at: float
    """When the node was counted, in seconds since the epoch."""
    until: float
    """The first instant at which another count could come to another result, in seconds since the
    epoch: the lease has to be renewed (until then no other host can have the node), or a build is
    overdue.
    """

    @classmethod
    def of(
        cls,
        view: NodeView,
        facts: HostFacts,
        present: ProviderTree,
        lease: Lease | None,
        agent: Agent,
        stranded_after: float,
        now: float,
    ) -> Self | None:
        """Return the count if its result can be taken again; None if it depends on the time of
        the facts, on records of other nodes, or on a lease that is not this host's.

        ``stranded_after``: the seconds after which a claim whose guest has not come is reported.
        """
        state, claims = view.state, view.state.claims.values()
        if lease is None or not is_ours(lease, agent.host, now) or view.taken or view.created:
            return None
        # The verdict on a move, and on a claim that is newer than the facts, depends on their time.
        waits = state.migrations or any(
            claim.half != "only" or claim.updated_at > facts.taken_at for claim in claims
        )
        # Who owns a guest without a claim here depends on the records of other nodes.
        strange = {guest.uuid for guest in facts.domains or ()} - {
            claim.instance for claim in claims
        }
        if waits or strange or view.drift or view.problems:
            return None
        renewal = lease.expires_at - agent.lease_seconds * RENEWED_AT
        # One that is overdue already is reported, or its guest is here.
        overdue = [
            at
            for claim in claims
            if claim.state != "consumed" and (at := claim.updated_at + stranded_after) > now
        ]
        return cls(view, facts, present, now, min([renewal, *overdue]))

    def repeats(
        self,
        state: NodeState | None,
        facts: HostFacts,
        present: ProviderTree,
        version: int | None,
        now: float,
    ) -> bool:
        """Return whether another count would come to the same result.

        ``state``: the node's state in memory. ``version``: of the node's record in the store; None
        if it is unknown, or a move from or to the node is under way.
        """
        return (
            state is not None
            and state.host.available
            and version == self.view.version == state.node.version
            and self.at <= now < self.until
            and facts.same_but_for_time(self.facts)
            and present.same_contents(self.present)
        )


@dataclass(slots=True)
class NodeEntry:
    """The entry of one node. The fields other than the locks belong to the thread that holds
    ``lock``.
    """

    host: HostCapacity
    """What the last audit found of the host."""
    state: NodeState | None = None
    """None until it is read, and after a failure that left the content of the store unknown."""
    agent: str | None = None
    """The name of this host once an audit found that the node is managed by it, else None."""
    created: bool = False
    """Whether the last audit created the node's record."""
    idle: IdleCount | None = None
    """The last audit's count, if it found nothing to do."""
    lock: FairLock = field(default_factory=FairLock)
    """First come, first served, so that no operation waits for ever on a busy node."""


@dataclass(slots=True)
class ListedNodes:
    """The nodes that the driver listed last."""

    nodes: frozenset[ProviderUuid] | None = None
    """Audited or not; None before the driver listed any."""


def current_state(
    node: ProviderUuid, entry: NodeEntry, reading: RecordReader, version: int | None
) -> NodeState:
    """Return the node's state, read again if its ``version`` in the store is another than in
    memory.

    :raises TrackerError: the node is not managed here yet, or not any more.
    """
    if entry.agent is None:
        raise not_audited(node)
    state = entry.state
    if state is None or version != state.node.version:
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


def not_audited(node: ProviderUuid) -> NodeNotReady:
    """Return the error of a node that waits for its first audit."""
    return NodeNotReady(
        f"node {node} was not audited yet",
        "wait for its first audit; see agent status if that does not come",
    )


@contextmanager
def lock_nodes(
    entries: Mapping[ProviderUuid, NodeEntry], nodes: Collection[ProviderUuid]
) -> Iterator[Mapping[ProviderUuid, NodeEntry]]:
    """Lock those of ``nodes`` that have an entry, and yield their entries by uuid.

    Every caller locks in the order of the uuids, so that there are no deadlocks.
    """
    with ExitStack() as stack:
        yield {
            uuid: entry
            for uuid in sorted(nodes)
            if (entry := _lock_entry(entries, uuid, stack)) is not None
        }


def _lock_entry(
    entries: Mapping[ProviderUuid, NodeEntry], uuid: ProviderUuid, stack: ExitStack
) -> NodeEntry | None:
    """Return the node's entry once ``stack`` holds its lock; None if there is no entry, or none any
    more when the lock was free.
    """
    while (entry := entries.get(uuid)) is not None:
        with ExitStack() as attempt:
            attempt.enter_context(entry.lock)
            if entries.get(uuid) is entry:
                stack.push(attempt.pop_all())
                return entry
    return None
