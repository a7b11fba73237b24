"""What the store has on the target of an operation, or on the consumers of a node's tree."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from agent.model.claim import Claim, Migration
from agent.model.devices import DeviceRecord
from agent.model.host_units import UnitRecord
from agent.model.instance import Instance
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import RecordChanges

Clock = Callable[[], float]
"""Returns the time in seconds since the epoch."""

ATTEMPTS = 10
"""How often a transaction is begun that is in conflict with others each time."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeConsumers:
    """What the records have on the consumers of one node's tree."""

    host: str
    """This host's name."""
    instances: Mapping[ConsumerUuid, Instance] = field(default_factory=dict)
    """The instances that have a claim on the node, that are among the consumers, or whose migration
    is among the consumers; deleted ones included.
    """
    migrations: Mapping[ConsumerUuid, Migration] = field(default_factory=dict)
    """The migrations from or to the node that have not ended, the migrations among the consumers,
    and all migrations of instances among the consumers that have no claim; ended ones included.
    """
    claims: Collection[Claim] = ()
    """The open claims of the node."""
    evacuations: Collection[Migration] = ()
    """The evacuations from the node that are done and not cleared yet."""
    strange_nodes: frozenset[ProviderUuid] = frozenset()
    """The nodes of evacuated instances that belong to another store."""
    unreadable: frozenset[ConsumerUuid] = frozenset()
    """The consumers that have a record which cannot be understood."""
    unknown_specs: frozenset[ConsumerUuid] = frozenset()
    """The instances whose flavor may have extra specs that are not on record."""

    def moves(self) -> Mapping[ConsumerUuid, Sequence[Migration]]:
        """Return the migrations of each instance that has any."""
        moves: dict[ConsumerUuid, list[Migration]] = {}
        for migration in self.migrations.values():
            moves.setdefault(migration.instance, []).append(migration)
        return moves
