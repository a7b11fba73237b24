"""What the store has on the target of an operation, read in the operation's transaction."""

from dataclasses import dataclass

from agent.model.claim import Claim
from agent.model.devices import DeviceRecord
from agent.model.instance import Instance
from agent.model.migration import Migration
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import RecordChanges
from agent.model.unit_record import UnitRecord
from agent.tracker.record_store import RecordReads

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
