"""The requests to the tracker, and what the store has on the target of an operation, or on the
consumers of a node's tree. Whoever makes a request has checked that ids, states and amounts exist,
as the local API does (:mod:`agent.api.requests`).
"""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from operator import attrgetter
from typing import Any, Literal

from agent.model.devices import DeviceRecord, DeviceRequest, UnitRecord
from agent.model.instance import Flavor, Instance, TaskState, VmState
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import Claim, Migration, MigrationType, RecordChanges
from agent.numa.fit import NO_NETWORKS, Networks
from agent.numa.pair import CellLimits

RECORDED_FLAVOR = Flavor("", "", 0, 0)
"""The flavor of an instance whose caller leaves the flavor to the records."""

NEWER = {"newer": True}
"""Metadata of a field that older agents did not know: while the field has its default, the digest
is the one that those agents computed.
"""

NOT_ASKED = frozenset({"given_fields", "given_migration_fields", "cleared", "clearing"})
"""Fields that are no part of the request: the names of the fields that the caller gave, and what
only the records have. The digest leaves them out.
"""

Resources = Mapping[ProviderUuid, Mapping[str, int]]
"""Provider to resource class to amount, as the scheduler allocated them."""


@dataclass(frozen=True, slots=True)
class ClaimLimits:
    """The most that all guests together may use of the node; None is unlimited."""

    memory_mb: int | None = None
    """MiB."""
    vcpus: int | None = None
    """Number of CPUs."""
    disk_mb: int | None = None
    """MiB."""
    cells: CellLimits | None = None
    """The limits of each host cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceClaim:
    """Request for the resources of a new guest."""

    id: str
    """Chosen by the caller, so that the request can be repeated after a lost answer."""
    node: ProviderUuid
    instance: Instance
    limits: ClaimLimits = ClaimLimits()
    allocations: Resources = field(default_factory=dict)
    devices: tuple[DeviceRequest, ...] = ()
    networks: Networks = field(default=NO_NETWORKS, metadata=NEWER)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveClaim:
    """Request for the resources of a guest that moves to this node or is resized on it; or the
    notice to the guest's present host of such a move.
    """

    id: str
    type: MigrationType
    node: ProviderUuid
    """The destination."""
    instance: Instance
    """The instance as the caller knows it, used where there is no record of it. The flavor may be
    ``RECORDED_FLAVOR`` where there is a record.
    """
    host: str | None = field(default=None, metadata=NEWER)
    """The name of the destination's host, because a source with a store of its own cannot know it.
    """
    given_fields: frozenset[str] = frozenset()
    """The fields of ``instance`` that the caller gave. They have to agree with the record."""
    flavor: Flavor | None = None
    """The new flavor of a resize, else None."""
    migration: Migration | None = None
    """The migration record that the caller created; None to have one created with the claim's id as
    its uuid.
    """
    given_migration_fields: frozenset[str] = frozenset()
    """The fields of ``migration`` that the caller gave."""
    page_size_kib: int | None = field(default=None, metadata=NEWER)
    """The size of the pages that a guest with cells runs on, in KiB, because a destination with a
    store of its own cannot know it.
    """
    limits: ClaimLimits = ClaimLimits()
    allocations: Resources = field(default_factory=dict)
    devices: tuple[DeviceRequest, ...] = ()
    networks: Networks = field(default=NO_NETWORKS, metadata=NEWER)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClaim:
    """Request for devices for a guest that is there: an interface that is attached, or a port of a
    live migration.
    """

    id: str
    node: ProviderUuid
    instance: ConsumerUuid
    devices: tuple[DeviceRequest, ...]


class Unset:
    """Type of a field that the caller did not give, for fields where None has a meaning."""


UNSET = Unset()


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceUpdate:
    """The requested changes to an instance's record."""

    vm_state: VmState | Unset = UNSET
    task_state: TaskState | Unset | None = UNSET
    deleted: bool | Unset = UNSET
    hidden: bool | Unset = UNSET
    """Whether the instance is the copy in a move between cells of the cloud that does not count."""
    image_properties: Mapping[str, str] | Unset = UNSET
    """The properties of the image with which the instance is rebuilt in place."""
    version: int | None = None
    """The version of the record that the caller has seen, None if any version will do."""


BuildResult = Literal["failed", "succeeded"]


def digest(request: InstanceClaim | MoveClaim | DeviceClaim) -> str:
    """Return a text that is equal exactly for equal requests."""
    return hashlib.sha256(json.dumps(request, sort_keys=True, default=_plain).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        kind: Any = type(value)
        pairs = ((name, getattr(value, name), left_out) for name, left_out in _digested(kind))
        return {name: found for name, found, left_out in pairs if found != left_out}
    return sorted(value) if isinstance(value, frozenset) else dict(value)


@cache
def _digested(kind: Any) -> Sequence[tuple[str, Any]]:
    """Return the fields of a request of that kind that the digest contains, each with the value
    that is left out of it.
    """
    return [
        (field.name, field.default if field.metadata.get("newer") else _NEVER)
        for field in fields(kind)
        if field.name not in NOT_ASKED
    ]


_NEVER = object()


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
