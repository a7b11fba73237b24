"""Reads records, all at one moment. A record that makes no sense is set aside where many are read, and an error where it is asked for."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Connection, Executable

from agent.model.assigned_unit import UnitRow
from agent.model.claim import Claim
from agent.model.compute_node import ComputeNode
from agent.model.held_device import DeviceRow
from agent.model.instance import Instance
from agent.model.lease import Lease
from agent.model.migration import Migration
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import DamagedRecord, NodeRecords
from agent.store import record_queries as queries
from agent.store.claim_rows import CLAIMS
from agent.store.compute_node_rows import NODES
from agent.store.device_rows import DEVICES
from agent.store.failure import damaged_record
from agent.store.instance_rows import INSTANCES
from agent.store.lease_rows import LEASES
from agent.store.location import Location
from agent.store.migration_rows import MIGRATIONS
from agent.store.unit_rows import UNITS
from agent.store.versioned import Found, Record, VersionedTable

Key = TypeVar("Key", bound=str)
# Fewer values than any database refuses in one statement.
CHUNK = 1000
PAGE = 1000


@dataclass(frozen=True, slots=True)
class Consumers:
    """What is known of some consumers; ``damaged``: the records of which nobody knows what they say."""

    instances: Mapping[ConsumerUuid, Instance]
    migrations: Mapping[ConsumerUuid, Migration]
    damaged: tuple[DamagedRecord, ...] = ()


class Reading:
    """One reading of the records; good until its ``with`` ends. None or empty for what there is not."""

    def __init__(self, connection: Connection, location: Location) -> None:
        self._connection = connection
        self._location = location

    # --- nodes -----------------------------------------------------------------------------------------------------

    def node_versions(self, nodes: Collection[ProviderUuid]) -> Mapping[ProviderUuid, int]:
        """The version of each of these nodes that there is."""
        return {uuid: version for some in _chunks(nodes) for uuid, version in self._connection.execute(queries.NODE_VERSIONS, {"some": some})}

    def load(self, node: ProviderUuid) -> NodeRecords | None:
        """All records of one node.

        :raises StoreError: the node's own record makes no sense.
        """
        own = self.node(node)
        if own is None:
            return None
        here = {"node": node}
        claims, instances = self._read(CLAIMS, queries.CLAIMS_HERE, here), self._read(INSTANCES, queries.INSTANCES_HERE, here)
        migrations = self._read(MIGRATIONS, queries.MIGRATIONS_HERE, here)
        devices, units = self._read(DEVICES, queries.DEVICES_HERE, here), self._read(UNITS, queries.UNITS_HERE, here)
        damaged = claims.damaged + instances.damaged + migrations.damaged + devices.damaged + units.damaged
        return NodeRecords(own, claims.records, instances.records, migrations.records, devices.records, units.records, damaged)

    def node(self, uuid: ProviderUuid) -> ComputeNode | None:
        """One node, deleted or not."""
        return self._one(NODES, queries.NODE_BY_UUID, key=uuid)

    def node_named(self, host: str, name: str) -> ComputeNode | None:
        """The node of that name on that host; a deleted one if there is no other."""
        return self._one(NODES, queries.NODE_BY_NAME, host=host, name=name)

    def nodes(self, host: str | None = None) -> Found[ComputeNode]:
        """All nodes, or those of one host; not the deleted ones."""
        return self._read(NODES, queries.ALL_NODES if host is None else queries.NODES_OF_HOST, {"host": host} if host is not None else {})

    def lease(self, node: ProviderUuid) -> Lease | None:
        """Who manages the node."""
        return self._one(LEASES, queries.LEASE_OF_NODE, key=node)

    # --- one by one ------------------------------------------------------------------------------------------------

    def instance(self, uuid: ConsumerUuid) -> Instance | None:
        """One instance, deleted or not."""
        return self._one(INSTANCES, queries.INSTANCE_BY_UUID, key=uuid)

    def migration(self, uuid: ConsumerUuid) -> Migration | None:
        """One migration, ended or not."""
        return self._one(MIGRATIONS, queries.MIGRATION_BY_UUID, key=uuid)

    def claim(self, id: str) -> Claim | None:
        """One claim, open or not."""
        return self._one(CLAIMS, queries.CLAIM_BY_ID, key=id)

    def claims_of(self, instance: ConsumerUuid) -> tuple[Claim, ...]:
        """The instance's open claims on all nodes, in the order in which they were made.

        :raises StoreError: one of them makes no sense.
        """
        return self._sound(self._read(CLAIMS, queries.CLAIMS_OF_INSTANCE, {"key": instance}))

    def held_by(self, claims: Collection[str]) -> tuple[tuple[DeviceRow, ...], tuple[UnitRow, ...]]:
        """The devices and units that these claims hold.

        :raises StoreError: one of them makes no sense.
        """
        devices = self._sound(self._some(DEVICES, queries.DEVICES_HELD, claims))
        return devices, self._sound(self._some(UNITS, queries.UNITS_HELD, claims))

    # --- consumers -------------------------------------------------------------------------------------------------

    def consumers(self, uuids: Collection[ConsumerUuid]) -> Consumers:
        """The instances and migrations among these consumers."""
        instances, migrations = self._some(INSTANCES, queries.SOME_INSTANCES, uuids), self._some(MIGRATIONS, queries.SOME_MIGRATIONS, uuids)
        return Consumers({one.uuid: one for one in instances.records}, {one.uuid: one for one in migrations.records}, instances.damaged + migrations.damaged)

    def migrations_of(self, instances: Collection[ConsumerUuid]) -> Found[Migration]:
        """All migrations of these instances, those that ended too."""
        return self._some(MIGRATIONS, queries.MIGRATIONS_OF_INSTANCES, instances)

    # --- lists -----------------------------------------------------------------------------------------------------

    def instances(self, node: ProviderUuid | None = None, marker: str = "", limit: int = PAGE) -> Found[Instance]:
        """Instances in the order of their uuids, at most ``limit`` after ``marker``; all, or those of one node. Deleted ones too."""
        return self._page(INSTANCES, queries.INSTANCE_PAGES, queries.INSTANCE_PAGES_HERE, node, marker, limit)

    def migrations(self, node: ProviderUuid | None = None, marker: str = "", limit: int = PAGE) -> Found[Migration]:
        """Migrations in the order of their uuids; all, or those from or to one node. Ended ones too."""
        return self._page(MIGRATIONS, queries.MIGRATION_PAGES, queries.MIGRATION_PAGES_HERE, node, marker, limit)

    def claims(self, node: ProviderUuid | None = None, marker: str = "", limit: int = PAGE) -> Found[Claim]:
        """Claims in the order of their ids; all, or those on one node. Released ones too."""
        return self._page(CLAIMS, queries.CLAIM_PAGES, queries.CLAIM_PAGES_HERE, node, marker, limit)

    def devices(self, node: ProviderUuid, marker: str = "", limit: int = PAGE) -> Found[DeviceRow]:
        """Devices of one node in the order of their addresses."""
        return self._read(DEVICES, queries.DEVICE_PAGES_HERE, {"node": node, "marker": marker, "limit": limit})

    # --- parts -----------------------------------------------------------------------------------------------------

    def _page(
        self, table: VersionedTable[Record], everywhere: Executable, here: Executable, node: ProviderUuid | None, marker: str, limit: int
    ) -> Found[Record]:
        page: dict[str, Any] = {"marker": marker, "limit": limit}
        return self._read(table, everywhere, page) if node is None else self._read(table, here, {**page, "node": node})

    def _read(self, table: VersionedTable[Record], statement: Executable, values: Mapping[str, Any]) -> Found[Record]:
        return table.read(self._connection, statement, values)

    def _some(self, table: VersionedTable[Record], statement: Executable, keys: Collection[str]) -> Found[Record]:
        found = [self._read(table, statement, {"some": some}) for some in _chunks(keys)]
        return Found(tuple(one for part in found for one in part.records), tuple(one for part in found for one in part.damaged))

    def _one(self, table: VersionedTable[Record], statement: Executable, **values: str) -> Record | None:
        return next(iter(self._sound(self._read(table, statement, values))), None)

    def _sound(self, found: Found[Record]) -> tuple[Record, ...]:
        for one in found.damaged:
            raise damaged_record(self._location, one)
        return found.records


def _chunks(keys: Collection[Key]) -> Iterator[list[Key]]:
    left = iter(keys)
    while some := list(islice(left, CHUNK)):
        yield some
