"""What the tracker needs of the store: its protocols, the clock, the number of attempts; and what
the store has on the target of an operation, read in the operation's transaction.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Protocol

from agent.model.claim import Claim, Migration
from agent.model.devices import DeviceRecord
from agent.model.host_units import UnitRecord
from agent.model.instance import Instance
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import (
    ComputeNode,
    Lease,
    NodeRecords,
    RecordChanges,
    RecordedConsumers,
)

Clock = Callable[[], float]
"""Returns the time in seconds since the epoch."""

ATTEMPTS = 10
"""How often a transaction is begun that is in conflict with others each time."""


class RecordReads(Protocol):
    """Reads of records, all at one moment. Returns None or empty where there is no record."""

    def node_versions(self, nodes: Collection[ProviderUuid]) -> Mapping[ProviderUuid, int]:
        """Return the version of each of these nodes that exists."""

    def quiet_versions(self, nodes: Collection[ProviderUuid]) -> Mapping[ProviderUuid, int]:
        """Return the version of each of these nodes that exists, without those from or to which a
        move is under way.
        """

    def load(self, node: ProviderUuid) -> NodeRecords | None:
        """Return all records of one node."""

    def node(self, uuid: ProviderUuid) -> ComputeNode | None:
        """Return one node, deleted or not."""

    def node_named(self, host: str, name: str) -> ComputeNode | None:
        """Return the node of that name on that host, deleted or not."""

    def lease(self, node: ProviderUuid) -> Lease | None:
        """Return the lease on the node, which names the host that manages it."""

    def leases(self, host: str) -> Sequence[Lease]:
        """Return all leases that the host has, or was the last to have."""

    def nodes_of(self, host: str) -> Collection[ProviderUuid]:
        """Return the nodes of the host without the deleted ones."""

    def nodes_with_instances(self, host: str) -> Collection[ProviderUuid]:
        """Return the nodes on which the host has instances."""

    def instance(self, uuid: ConsumerUuid) -> Instance | None:
        """Return one instance, deleted or not."""

    def migration(self, uuid: ConsumerUuid) -> Migration | None:
        """Return one migration, ended or not."""

    def claim(self, id: str) -> Claim | None:
        """Return one claim, open or not."""

    def claims_of(self, instance: ConsumerUuid) -> tuple[Claim, ...]:
        """Return the instance's open claims on all nodes."""

    def held_by(
        self, claims: Collection[str]
    ) -> tuple[tuple[DeviceRecord, ...], tuple[UnitRecord, ...]]:
        """Return the devices and units that these claims hold."""

    def consumers(self, uuids: Collection[ConsumerUuid]) -> RecordedConsumers:
        """Return the records of these consumers, however many there are."""

    def evacuations_from(self, host: str, node: ProviderUuid) -> Collection[Migration]:
        """Return the evacuations from a node of a host that are done and not cleared yet."""

    def has_records(self) -> bool:
        """Return whether there is any record of a guest or a claim on any node, ended ones
        included.
        """


class RecordTransaction(RecordReads, Protocol):
    """Reads and writes; no other transaction changes what this one has read before it ends."""

    def write(self, changes: RecordChanges) -> None:
        """Write all changes, and raise the versions of the nodes that they touch.

        :raises RecordConflict: a record was written by another transaction since it was read, or a
            new one exists already.
        """

    def change_uuid(
        self, before: ProviderUuid, after: ProviderUuid, running: Collection[ConsumerUuid] = ()
    ) -> Sequence[ConsumerUuid]:
        """Give a node, with all its records, another uuid, and forget its journal and mirror.
        Return the instances of claims that had to be released; those of ``running`` guests stay.
        """


class RecordStore(Protocol):
    """The store of records. Changes are durable once their transaction has ended."""

    def reading(self) -> AbstractContextManager[RecordReads]:
        """Read without blocking any other process."""

    def transaction(
        self, nodes: Collection[ProviderUuid]
    ) -> AbstractContextManager[RecordTransaction]:
        """Read and write the records of these nodes and of their instances, exclusively; an
        exception undoes all of it.

        :raises RecordConflict: another transaction was faster.
        """

    def clear(self, migrations: Collection[ConsumerUuid]) -> None:
        """Record that these evacuations are cleared."""

    def intend_clearing(self, clearing: Mapping[ConsumerUuid, int | None]) -> None:
        """Record the consumer generation with which each of these evacuations is being cleared,
        None for those that are not.
        """

    def remove_ended(self, before: float) -> int:
        """Remove the records that ended before that time and that no other record refers to.
        Returns their number.
        """


NO_CHANGES = RecordChanges()


@dataclass(frozen=True, slots=True)
class OperationTarget:
    """The records that an operation is about, as far as the caller knows them."""

    node: ProviderUuid | None = None
    instance: ConsumerUuid | None = None
    claim: str | None = None
    migration: ConsumerUuid | None = None
    hosts: frozenset[str] = frozenset()
    """The hosts where the caller says that the instance is."""


@dataclass(frozen=True, slots=True)
class StoredState:
    """The records of an operation's target; None and empty where the store has none."""

    instance: Instance | None = None
    migration: Migration | None = None
    claim: Claim | None = None
    """The claim with the operation's id, open or released."""
    claims: tuple[Claim, ...] = ()
    """All open claims of the instance, on any node."""
    devices: tuple[DeviceRecord, ...] = ()
    """The devices that ``claims`` hold."""
    units: tuple[UnitRecord, ...] = ()
    """The units that ``claims`` hold."""
    strange_hosts: frozenset[str] = frozenset()
    """The hosts that the record or the caller names for the instance and that have no node in this
    store, because they have a store of their own.
    """

    @property
    def has_left(self) -> bool:
        """Whether the instance is on no host or on one with a store of its own, so that its record
        here is the last that was reported and may be out of date.
        """
        return (
            not self.claims
            and self.instance is not None
            and (self.instance.host is None or self.instance.host in self.strange_hosts)
        )


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """The changes that an operation writes, and the claim that it answers with."""

    claim: Claim
    changes: RecordChanges = NO_CHANGES

    @property
    def repeated(self) -> bool:
        """Whether the operation was carried out before, so that nothing is written."""
        return not self.changes

    @property
    def made(self) -> tuple[Claim, Sequence[DeviceRecord], Sequence[UnitRecord]] | None:
        """The claim that the operation made, with the devices and units that it holds, as the store
        has them now; None if the operation changed a claim that was there, or nothing.
        """
        if self.claim.version or self.claim not in self.changes.claims:
            return None
        devices = [
            replace(device, version=device.version + 1)
            for device in self.changes.devices
            if device.holder == self.claim.id
        ]
        units = [
            replace(unit, version=unit.version + 1)
            for unit in self.changes.units
            if unit.holder == self.claim.id
        ]
        return (
            replace(self.claim, version=1),
            sorted(devices, key=attrgetter("node", "address")),
            sorted(units, key=attrgetter("node", "provider", "resource_class", "identifier")),
        )


def is_departure(claim: Claim, migration: Migration) -> bool:
    """Return whether the claim with a move's id stands at the source, because the destination has a
    store of its own.
    """
    return claim.node != migration.dest_node


def read_stored_state(
    reading: RecordReads, subject: OperationTarget, *, held: bool = True
) -> StoredState:
    """Read the records of an operation's target. ``held``: with the devices and units of the
    claims.
    """
    claim = reading.claim(subject.claim) if subject.claim is not None else None
    instance = subject.instance or (claim.instance if claim is not None else None)
    if instance is None:
        return StoredState(claim=claim)
    open_ones = reading.claims_of(instance)
    migration = subject.migration or (
        claim.origin
        if claim is not None
        else next((claim.migration for claim in open_ones if claim.migration), None)
    )
    devices, units = (
        reading.held_by([claim.id for claim in open_ones]) if held and open_ones else ((), ())
    )
    found = reading.instance(instance)
    # An instance that has claims in this store has its host in this store too.
    hosts = {
        *subject.hosts,
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


def claimed_nodes(stored: StoredState) -> frozenset[ProviderUuid]:
    """Return the nodes of the claims."""
    return frozenset(
        claim.node
        for claim in (*stored.claims, *([stored.claim] if stored.claim is not None else []))
    )


def nodes_of_instance(stored: StoredState) -> tuple[ProviderUuid, ...]:
    """Return the nodes to whose records the instance belongs: the node where it is, and the nodes
    where it has claims.
    """
    here = stored.instance.node if stored.instance is not None else None
    return (*(claim.node for claim in stored.claims), *([here] if here is not None else []))


def ends_of_move(stored: StoredState) -> frozenset[ProviderUuid]:
    """Return the source and the destination of the move, because an operation may be repeated at an
    end where the guest has no claim any more.
    """
    move = stored.migration
    return (
        frozenset()
        if move is None
        else frozenset(uuid for uuid in (move.source_node, move.dest_node) if uuid is not None)
    )
