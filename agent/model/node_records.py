"""All records of one node, as one reading of the store shows them."""

from dataclasses import dataclass

from agent.model.unit_record import UnitRecord
from agent.model.claim import Claim
from agent.model.compute_node import ComputeNode
from agent.model.device_record import DeviceRecord
from agent.model.instance import Instance
from agent.model.migration import Migration


@dataclass(frozen=True, slots=True)
class DamagedRecord:
    """A record that makes no sense, set aside so that the others count. ``table`` and ``key`` say which, ``why`` in what.

    A key of several columns has them joined by ``/``.
    """

    table: str
    key: str
    why: str


@dataclass(frozen=True, slots=True)
class NodeRecords:
    """The node with its open claims, devices and units; the instances that it owns or that have an open claim here, deleted
    ones too if they have; and the migrations from or to it that have not ended or that an open claim here names.
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
