"""All records of one node, as one reading of the store shows them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Self

from agent.model.claim import Claim
from agent.model.compute_node import ComputeNode, Lease
from agent.model.devices import DeviceRecord
from agent.model.instance import Instance
from agent.model.migration import Migration
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.unit_record import UnitRecord


@dataclass(frozen=True, slots=True)
class RecordedConsumers:
    """``instances`` among the consumers asked for, deleted ones too; ``migrations`` among them, and
    every one of these instances, ended ones too; ``unreadable``: those of which there is a record
    that makes no sense.
    """

    instances: Mapping[ConsumerUuid, Instance] = field(default_factory=dict)
    migrations: Mapping[ConsumerUuid, Migration] = field(default_factory=dict)
    unreadable: frozenset[ConsumerUuid] = frozenset()


@dataclass(frozen=True, slots=True)
class RecordChanges:
    """Records as they are to be, with the versions they were read with; ``dropped_…`` are removed,
    guarded the same way.

    ``also_on``: further nodes to whose records these belong, because the instance is or was there,
    or has a claim there.
    """

    nodes: tuple[ComputeNode, ...] = ()
    instances: tuple[Instance, ...] = ()
    migrations: tuple[Migration, ...] = ()
    claims: tuple[Claim, ...] = ()
    devices: tuple[DeviceRecord, ...] = ()
    units: tuple[UnitRecord, ...] = ()
    leases: tuple[Lease, ...] = ()
    dropped_devices: tuple[DeviceRecord, ...] = ()
    dropped_units: tuple[UnitRecord, ...] = ()
    also_on: tuple[ProviderUuid, ...] = ()

    def __bool__(self) -> bool:
        return any(getattr(self, one.name) for one in fields(self))

    def __add__(self, other: Self) -> Self:
        return type(self)(
            *(getattr(self, one.name) + getattr(other, one.name) for one in fields(self))
        )

    @property
    def touched(self) -> frozenset[ProviderUuid]:
        """The nodes of which something changes: their own versions grow too."""
        on_nodes = (self.claims, self.devices, self.units, self.dropped_devices, self.dropped_units)
        nodes = {record.node for records in on_nodes for record in records}
        return frozenset(
            nodes
            | {instance.node for instance in self.instances if instance.node is not None}
            | {*self.also_on}
        )


@dataclass(frozen=True, slots=True)
class DamagedRecord:
    """A record that makes no sense, set aside so that the others count. ``table`` and ``key`` say
    which, ``why`` in what.

    A key of several columns has them joined by ``/``.
    """

    table: str
    key: str
    why: str


@dataclass(frozen=True, slots=True)
class NodeRecords:
    """The node with its open claims, devices and units; the instances that it owns or that have an
    open claim here, deleted ones too if they have; and the migrations from or to it that have not
    ended or that an open claim here names.
    """

    node: ComputeNode
    claims: tuple[Claim, ...] = ()
    instances: tuple[Instance, ...] = ()
    migrations: tuple[Migration, ...] = ()
    devices: tuple[DeviceRecord, ...] = ()
    units: tuple[UnitRecord, ...] = ()
    damaged: tuple[DamagedRecord, ...] = ()

    def unreadable(self, table: str) -> frozenset[str]:
        """The keys of those in ``table`` that make no sense."""
        return frozenset(one.key for one in self.damaged if one.table == table)
