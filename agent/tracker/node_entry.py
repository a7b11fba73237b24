"""A node's entry in memory: its lock, its state, and what its last audit found of the host; and the
leases, for how long this host manages a node, or all nodes of a driver that other hosts see too.
"""

import threading
import uuid
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self, cast

from agent.deadline import DeadlinePassed, acquired
from agent.errors import RecordConflict, StandingBy
from agent.model.facts import HostFacts
from agent.model.names import ProviderUuid, printable
from agent.model.node_records import Lease, RecordChanges
from agent.model.provider_tree import ProviderTree
from agent.store.reading import RecordReader
from agent.store.records import Records, Transaction
from agent.tracker.errors import NodeHeldElsewhere, NodeNotReady
from agent.tracker.node_record import RENEWED_AT, Agent, HostCapacity, is_ours
from agent.tracker.node_state import NodeState, NodeView
from agent.tracker.stored_state import Clock


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
        if waits or strange or view.drift or state.problems:
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
    unwritten: RecordChanges | None = None
    """The records of a node that is new to the store, until they are written."""
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
        "wait for its first audit; if that does not come, see why: agent status",
    )


@contextmanager
def lock_nodes(
    entries: Mapping[ProviderUuid, NodeEntry], nodes: Collection[ProviderUuid]
) -> Iterator[Mapping[ProviderUuid, NodeEntry]]:
    """Lock those of ``nodes`` that have an entry, and yield their entries by uuid.

    Every caller locks in the order of the uuids, so that there are no deadlocks.
    """
    with ExitStack() as stack:
        locked = {}
        for uuid in sorted(nodes):
            # Another one, or none, if the node was removed while this thread waited.
            while (entry := entries.get(uuid)) is not None:
                # Kept to the end, because nobody waits for the lock of a node that was removed.
                stack.enter_context(entry.lock)
                if entries.get(uuid) is entry:
                    locked[uuid] = entry
                    break
        yield locked


# Leases are stored by uuid. The uuid of a lease's name is the same on every host.
NAMES = uuid.UUID("b3f0c9a8-5d7e-4c21-8f46-2f1f6f0f9a55")
TRIES = 3


def lease_uuid(name: str) -> ProviderUuid:
    """Return the uuid under which the lease called ``name`` is stored."""
    return ProviderUuid(str(uuid.uuid5(NAMES, name)))


class SharedLease:
    """Leases on many nodes at once: of the agents that could manage the nodes, the holder does.

    Takes and renews leases for ``host``, each for ``seconds``. Threads may share it.
    """

    def __init__(self, records: Records, host: str, seconds: float, clock: Clock) -> None:
        self._records, self._host, self._seconds, self._clock = records, host, seconds, clock
        self._lock = threading.Lock()
        # Until when each lease is this host's, so that the store need not be read every time.
        self._until: dict[str, float] = {}

    def hold(self, name: str, *, dry_run: bool = False) -> bool:
        """Take the lease called ``name`` if it is free, or renew it when a third of it has passed.
        ``dry_run``: only check whether the lease could be taken.

        Returns whether the lease was this host's all the time since it was last held; if not,
        another host may have had it in between.

        :raises StandingBy: another host has it.
        :raises StoreError: the store cannot be read or written.
        """
        with self._lock:
            left = self._until.get(name, 0.0) - self._clock()
            # More than the full time is left when the clock was set back.
            if not dry_run and self._seconds * RENEWED_AT < left <= self._seconds:
                return True
            for attempt in range(1, TRIES + 1):
                try:
                    self._take(name, dry_run)
                except RecordConflict:
                    if attempt == TRIES:
                        raise
                else:
                    break
            return left > 0

    def leave(self, *names: str) -> None:
        """Leave the leases called ``names``, or all leases, to a successor with the same host name:
        they are not ended here.
        """
        with self._lock:
            for name in names or list(self._until):
                self._until.pop(name, None)

    def release(self) -> None:
        """End the leases, so that another host can take them at once.

        :raises StoreError: the store cannot be written.
        """
        with self._lock:
            names, self._until = list(self._until), {}
            with self._records.transaction([]) as transaction:
                mine = [
                    lease
                    for name in names
                    if (lease := transaction.lease(lease_uuid(name))) is not None
                    and lease.host == self._host
                ]
                if mine:
                    transaction.write(
                        RecordChanges(
                            leases=tuple(replace(lease, expires_at=self._clock()) for lease in mine)
                        )
                    )

    def _take(self, name: str, dry_run: bool) -> None:
        key = lease_uuid(name)
        with self._records.reading() if dry_run else self._records.transaction([]) as store:
            lease, now = store.lease(key), self._clock()
            if lease is not None and lease.host != self._host and lease.live(now):
                self._until.pop(name, None)
                raise StandingBy(
                    f"standing by: host {printable(lease.host)} manages {printable(name)}",
                    (
                        "wait: they are taken over when that agent stops, or is not heard "
                        f"of for {self._seconds:g} s"
                    ),
                    holder=lease.host,
                )
            if dry_run:
                return
            taken = replace(
                lease or Lease(node=key, host="", expires_at=0.0),
                host=self._host,
                expires_at=now + self._seconds,
            )
            cast(Transaction, store).write(RecordChanges(leases=(taken,)))
        self._until[name] = taken.expires_at


class NodeLeases:
    """The leases on the nodes in ``entries``, which were audited, and on those that an earlier
    instance left to this one. Each audit writes its node's lease itself.
    """

    def __init__(
        self,
        records: Records,
        entries: Mapping[ProviderUuid, NodeEntry],
        agent: Agent,
        clock: Clock,
    ) -> None:
        self._records, self._entries, self._agent, self._clock = records, entries, agent, clock
        self._kept = 0.0
        """When ``keep`` last read the leases, in seconds since the epoch."""
        self._left = frozenset[ProviderUuid]()
        """The nodes that had left then."""
        self._handed_over = frozenset[ProviderUuid]()
        """The nodes whose leases the successor of this instance releases."""
        self._inherited = frozenset[ProviderUuid]()
        """The nodes whose leases this instance releases, although it has not audited them."""

    def keep(self, present: Collection[ProviderUuid]) -> None:
        """Renew the leases on the nodes ``present`` in one transaction, because not every pass
        audits each of many nodes; end those on nodes that left.

        :raises StoreError: the store cannot be written; the next audits renew the leases.
        """
        now, agent, here = self._clock(), self._agent, frozenset(present)
        left = self._nodes() - here
        if 0 <= now - self._kept < agent.lease_seconds / 3 and left == self._left:
            return
        with self._records.transaction([]) as transaction:
            mine = transaction.leases(agent.host)
            renewed = self._renewed((one for one in mine if one.node in here), now)
            ended = [
                replace(lease, expires_at=now)
                for lease in mine
                if lease.node in left and lease.live(now)
            ]
            if renewed or ended:
                transaction.write(RecordChanges(leases=(*renewed, *ended)))
        self._kept, self._left = now, left
        self._inherited = self._inherited & here - frozenset(self._entries)

    def renew(self) -> None:
        """Renew this agent's leases while no audit does.

        :raises StoreError: the store cannot be written; the next audits renew the leases.
        """
        now, here = self._clock(), self._nodes()
        with self._records.transaction([]) as transaction:
            mine = transaction.leases(self._agent.host)
            live = (lease for lease in mine if lease.node in here and lease.live(now))
            if renewed := self._renewed(live, now):
                transaction.write(RecordChanges(leases=renewed))

    def _renewed(self, leases: Iterable[Lease], now: float) -> tuple[Lease, ...]:
        """Return those of ``leases`` that are due, renewed."""
        seconds = self._agent.lease_seconds
        return tuple(
            replace(lease, expires_at=now + seconds)
            for lease in leases
            if lease.expires_at - now <= seconds * RENEWED_AT
        )

    @property
    def has_inherited(self) -> bool:
        """Whether an earlier instance left leases to this one and ``keep`` has not run since."""
        return bool(self._inherited)

    def hand_over(self, successor: "NodeLeases | None") -> None:
        """Leave the leases of all nodes to ``successor``, which has the same host name; None if it
        does not exist yet.
        """
        self._handed_over = self._nodes()
        if successor is not None:
            successor._inherited |= self._handed_over

    def release(self) -> None:
        """End the leases of all nodes, so that another host can take the nodes over at once."""
        nodes = sorted(self._nodes() - self._handed_over)
        with self._records.transaction(nodes) as transaction:
            now, leases = self._clock(), [transaction.lease(node) for node in nodes]
            ended = tuple(
                replace(lease, expires_at=now)
                for lease in leases
                if lease is not None and lease.host == self._agent.host
            )
            if ended:
                transaction.write(RecordChanges(leases=ended))

    def _nodes(self) -> frozenset[ProviderUuid]:
        return frozenset(self._entries) | self._inherited
