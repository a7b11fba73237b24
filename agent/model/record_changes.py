"""Changes: the records that one operation writes, all or none.

Every record carries the version it was read with, 0 for one that does not exist yet. Writing it raises that by one, and
fails with a conflict if somebody else wrote it meanwhile: then the operation is planned anew on what is there now.
"""

from dataclasses import dataclass, fields
from typing import Self

from agent.model.unit_record import UnitRecord
from agent.model.claim import Claim
from agent.model.compute_node import ComputeNode
from agent.model.device_record import DeviceRecord
from agent.model.instance import Instance
from agent.model.lease import Lease
from agent.model.migration import Migration
from agent.model.names import ProviderUuid


@dataclass(frozen=True, slots=True)
class RecordChanges:
    """Records as they are to be, with the versions they were read with; ``dropped_…`` are removed, guarded the same way.

    ``also_on``: further nodes to whose records these belong, because the instance is or was there, or has a claim there.
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
        return type(self)(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    @property
    def touched(self) -> frozenset[ProviderUuid]:
        """The nodes of which something changes: their own versions grow too."""
        on_nodes = (self.claims, self.devices, self.units, self.dropped_devices, self.dropped_units)
        nodes = {record.node for records in on_nodes for record in records}
        return frozenset(nodes | {instance.node for instance in self.instances if instance.node is not None} | {*self.also_on})
