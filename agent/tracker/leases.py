"""Leases: for how long this host, and no other, manages a node, or all nodes of a driver that other
hosts see too.
"""

import threading
import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import cast

from agent.errors import RecordConflict, StandingBy
from agent.model.names import ProviderUuid, printable
from agent.model.node_records import Lease, RecordChanges
from agent.store.records import Records, Transaction
from agent.tracker.node_entry import NodeEntry
from agent.tracker.node_record import RENEWED_AT, Agent
from agent.tracker.stored_state import Clock

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
                        "none needed: they are taken over when that agent stops, or is not heard "
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
            due = [
                lease
                for lease in mine
                if lease.node in here and lease.expires_at - now <= agent.lease_seconds * RENEWED_AT
            ]
            ended = [
                replace(lease, expires_at=now)
                for lease in mine
                if lease.node in left and lease.live(now)
            ]
            if due or ended:
                renewed = (replace(lease, expires_at=now + agent.lease_seconds) for lease in due)
                transaction.write(RecordChanges(leases=(*renewed, *ended)))
        self._kept, self._left = now, left
        self._inherited = self._inherited & here - frozenset(self._entries)

    def renew(self) -> None:
        """Renew this agent's leases while no audit does.

        :raises StoreError: the store cannot be written; the next audits renew the leases.
        """
        now, agent, here = self._clock(), self._agent, self._nodes()
        with self._records.transaction([]) as transaction:
            due = tuple(
                replace(lease, expires_at=now + agent.lease_seconds)
                for lease in transaction.leases(agent.host)
                if lease.node in here
                and lease.live(now)
                and lease.expires_at - now <= agent.lease_seconds * RENEWED_AT
            )
            if due:
                transaction.write(RecordChanges(leases=due))

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
