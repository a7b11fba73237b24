"""The records of the tracker: claims, the resources promised to one instance on one node, whose
open ones sum up to the usage of the node; migrations, the moves of one instance from one node to
another, or its resizes; compute nodes, units of capacity that one agent manages on one host; all
records of a node, as one read of the store returns them; and changes of records.

Every record has a ``version``: the store raises it with each write, and refuses a write that is
based on another version than the stored one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Self

from agent.model.devices import DeviceRecord, MdevShare, UnitRecord
from agent.model.instance import NOTHING, Amounts, Instance, PlacedCell
from agent.model.names import ConsumerUuid, ProviderUuid

Half = Literal["only", "old", "new"]
ClaimState = Literal["held", "consumed", "released"]
Purpose = Literal["instance", "move", "devices"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One promise, with its own amounts, so that exactly these are given back whatever the instance
    has become.

    Devices and units name the claim that holds them.
    """

    id: str
    purpose: Purpose
    instance: ConsumerUuid
    node: ProviderUuid
    half: Half = "only"
    """The source's (``old``) or the destination's (``new``) half of a move; the half that stays
    becomes ``only`` again.
    """
    state: ClaimState = "held"
    """``held`` until the guest is there, then ``consumed``. A ``released`` claim counts no more and
    is kept so that a repeated request is harmless.
    """
    amounts: Amounts = NOTHING
    cells: tuple[PlacedCell, ...] = ()
    """The host cells of the guest's cells; empty for a guest that floats."""
    mdevs: tuple[MdevShare, ...] = ()
    """The mediated devices that the scheduler allocated."""
    flavor_id: str | None = None
    """The flavor whose amounts are counted."""
    migration: ConsumerUuid | None = None
    """The move under way of which the claim is a half; None for ``only``."""
    origin: ConsumerUuid | None = None
    """The move for which the claim was opened, whatever came after."""
    digest: str = ""
    """Equal exactly for an equal request."""
    created_at: float = 0.0
    """Seconds since the epoch."""
    updated_at: float = 0.0
    """Seconds since the epoch."""
    version: int = 0
    """See :mod:`agent.model.node_records`."""

    @property
    def open(self) -> bool:
        """Whether it counts."""
        return self.state != "released"


MigrationType = Literal["resize", "migration", "live-migration", "evacuation"]
MigrationStatus = Literal[
    "queued",
    "accepted",
    "pre-migrating",
    "preparing",
    "migrating",
    "running",
    "post-migrating",
    "finished",
    "reverting",
    "confirming",
    "error",
    "confirmed",
    "reverted",
    "completed",
    "done",
    "failed",
    "cancelled",
]
# The status of a move that was given up without a fault.
GIVEN_UP: Mapping[MigrationType, MigrationStatus] = {
    "resize": "cancelled",
    "migration": "cancelled",
    "live-migration": "cancelled",
    "evacuation": "failed",
}
# The final status of a move that has arrived and was still to be confirmed or reverted, if its
# guest is gone, so that nobody confirms or reverts it any more.
LEFT_OPEN: Mapping[MigrationStatus, MigrationStatus] = {
    "finished": "confirmed",
    "confirming": "confirmed",
    "reverting": "reverted",
}
ENDED: frozenset[MigrationStatus] = frozenset(
    {"confirmed", "reverted", "completed", "done", "failed", "cancelled"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One move. Its uuid is also a consumer, which holds the allocation at the source while the
    move goes on.

    The resources at either end are in the claims: the half ``old`` at the source, ``new`` at the
    destination.
    """

    uuid: ConsumerUuid
    instance: ConsumerUuid
    type: MigrationType
    status: MigrationStatus
    source_compute: str | None
    source_node: ProviderUuid | None
    dest_compute: str | None = None
    dest_node: ProviderUuid | None = None
    dest_host: str | None = None
    """The IP address of the destination."""
    old_flavor_id: str | None = None
    new_flavor_id: str | None = None
    hidden: bool = False
    cross_cell_move: bool = False
    cleared: bool = False
    """Whether nothing of an evacuation that is done is left in Placement at the source: an
    allocation that the instance has there afterwards has another reason.
    """
    clearing: int | None = None
    """The consumer generation of the instance with which the leftover is being removed; None if it
    is not.
    """
    created_at: float = 0.0
    """Seconds since the epoch."""
    updated_at: float = 0.0
    """Seconds since the epoch."""
    version: int = 0
    """See :mod:`agent.model.node_records`."""

    @property
    def ended(self) -> bool:
        """Whether the move is over, however it ended."""
        return self.status in ENDED

    @property
    def without_guest(self) -> MigrationStatus:
        """The status with which the move ends when its guest is gone."""
        return self.status if self.ended else LEFT_OPEN.get(self.status, GIVEN_UP[self.type])

    @property
    def in_progress(self) -> bool:
        """Whether the move goes on; also when ``finished``, because it waits to be confirmed or
        reverted.
        """
        return not self.ended and self.status != "error"

    @property
    def same_node(self) -> bool:
        """Whether source and destination are the same node."""
        return self.source_node is not None and self.source_node == self.dest_node


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right of one host to manage a node until a certain time."""

    node: ProviderUuid
    """The uuid of the node, or of a lease on many nodes, see :mod:`agent.tracker.node_entry`."""
    host: str
    expires_at: float
    """Seconds since the epoch."""
    version: int = 0
    """See :mod:`agent.model.node_records`."""

    def live(self, now: float) -> bool:
        """Return whether the lease has not expired at ``now``."""
        return now < self.expires_at


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeNode:
    """The record of a node.

    Totals are those last seen. What is used is not recorded, because it is the sum of the claims.
    """

    uuid: ProviderUuid
    """Also the uuid of the root provider."""
    host: str
    name: str
    """The driver's name, also that of the root provider."""
    host_ip: str | None = None
    vcpus: int | None = None
    memory_mb: int | None = None
    """MiB."""
    local_gb: int | None = None
    """GiB."""
    hypervisor_type: str = ""
    hypervisor_version: int = 0
    cpu_info: str = ""
    cpu_allocation_ratio: float = 1.0
    ram_allocation_ratio: float = 1.0
    disk_allocation_ratio: float = 1.0
    failed_builds: int = 0
    dirty: bool = False
    """Whether resources were promised or given back and that is not published yet."""
    deleted: bool = False
    created_at: float = 0.0
    """Seconds since the epoch."""
    updated_at: float = 0.0
    """Seconds since the epoch."""
    version: int = 0
    """Grows with every change of the node or of its claims, devices and units, so that a process
    that has them in memory notices.
    """

    @property
    def disk_mb(self) -> int | None:
        """The disk in MiB."""
        return None if self.local_gb is None else self.local_gb * 1024


@dataclass(frozen=True, slots=True)
class RecordedConsumers:
    """The records of some consumers."""

    instances: Mapping[ConsumerUuid, Instance] = field(default_factory=dict)
    """The instances among the consumers, deleted ones included."""
    migrations: Mapping[ConsumerUuid, Migration] = field(default_factory=dict)
    """The migrations among the consumers, and all migrations of these instances, ended ones
    included.
    """
    unreadable: frozenset[ConsumerUuid] = frozenset()
    """The consumers that have a record which cannot be understood."""


@dataclass(frozen=True, slots=True)
class RecordChanges:
    """Records as they are to be written, each with the version with which it was read."""

    nodes: tuple[ComputeNode, ...] = ()
    instances: tuple[Instance, ...] = ()
    migrations: tuple[Migration, ...] = ()
    claims: tuple[Claim, ...] = ()
    devices: tuple[DeviceRecord, ...] = ()
    units: tuple[UnitRecord, ...] = ()
    leases: tuple[Lease, ...] = ()
    dropped_devices: tuple[DeviceRecord, ...] = ()
    """Records to remove, guarded by their versions too."""
    dropped_units: tuple[UnitRecord, ...] = ()
    """Records to remove, guarded by their versions too."""
    also_on: tuple[ProviderUuid, ...] = ()
    """Further nodes to whose records the changes belong, because the instance is or was there, or
    has a claim there.
    """

    def __bool__(self) -> bool:
        return self != RecordChanges()

    def __add__(self, other: Self) -> Self:
        return type(self)(
            nodes=self.nodes + other.nodes,
            instances=self.instances + other.instances,
            migrations=self.migrations + other.migrations,
            claims=self.claims + other.claims,
            devices=self.devices + other.devices,
            units=self.units + other.units,
            leases=self.leases + other.leases,
            dropped_devices=self.dropped_devices + other.dropped_devices,
            dropped_units=self.dropped_units + other.dropped_units,
            also_on=self.also_on + other.also_on,
        )

    @property
    def touched(self) -> frozenset[ProviderUuid]:
        """The nodes whose records change: their own versions are raised too."""
        on_nodes = (self.claims, self.devices, self.units, self.dropped_devices, self.dropped_units)
        nodes = {record.node for records in on_nodes for record in records}
        return frozenset(
            nodes
            | {instance.node for instance in self.instances if instance.node is not None}
            | {*self.also_on}
        )


@dataclass(frozen=True, slots=True)
class DamagedRecord:
    """A record that cannot be understood, set aside so that the others count."""

    table: str
    key: str
    """The values of a key of several columns are joined by ``/``."""
    why: str
    """What is wrong with it."""


@dataclass(frozen=True, slots=True)
class NodeRecords:
    """The records of one node."""

    node: ComputeNode
    claims: tuple[Claim, ...] = ()
    """The open claims."""
    instances: tuple[Instance, ...] = ()
    """The instances that the node owns, and those that have an open claim here, even if deleted."""
    migrations: tuple[Migration, ...] = ()
    """The migrations from or to the node that have not ended, and those that an open claim here
    names.
    """
    devices: tuple[DeviceRecord, ...] = ()
    units: tuple[UnitRecord, ...] = ()
    damaged: tuple[DamagedRecord, ...] = ()

    def with_uuid(self, uuid: ProviderUuid) -> "NodeRecords":
        """Return the records as they are once the node has this uuid."""
        before = self.node.uuid

        def new(given: ProviderUuid | None) -> ProviderUuid | None:
            return uuid if given == before else given

        return replace(
            self,
            node=replace(self.node, uuid=uuid),
            claims=tuple(replace(one, node=uuid) for one in self.claims),
            instances=tuple(replace(one, node=new(one.node)) for one in self.instances),
            migrations=tuple(
                replace(one, source_node=new(one.source_node), dest_node=new(one.dest_node))
                for one in self.migrations
            ),
            devices=tuple(replace(one, node=uuid) for one in self.devices),
            units=tuple(
                replace(one, node=uuid, provider=uuid if one.provider == before else one.provider)
                for one in self.units
            ),
        )

    def unreadable(self, table: str) -> frozenset[str]:
        """Return the keys of the damaged records of ``table``."""
        return frozenset(record.key for record in self.damaged if record.table == table)
