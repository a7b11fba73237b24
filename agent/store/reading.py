"""Reading of records, all at one moment. An invalid record is set aside when many are read, and
raised as an error when it is read by itself.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Column, ColumnElement, Connection, Executable, or_

from agent.model.claim import Claim, Migration
from agent.model.devices import DeviceRecord
from agent.model.host_units import UnitRecord
from agent.model.instance import Instance
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import ComputeNode, Lease, NodeRecords, RecordedConsumers
from agent.store import record_queries as queries
from agent.store.engines import Location
from agent.store.record_table import Record, RecordBatch, RecordTable
from agent.store.store_errors import damaged_record
from agent.store.tables import (
    CLAIM,
    CLAIMS,
    DEVICE,
    DEVICES,
    INSTANCE,
    INSTANCES,
    LEASES,
    MIGRATION,
    MIGRATIONS,
    NODES,
    UNITS,
)

Key = TypeVar("Key", bound=str)
Clock = Callable[[], float]
Nodes = Collection[ProviderUuid] | None
# A number of values that every database accepts in one statement.
CHUNK = 1000
PAGE = 1000


def later(lease: Lease, seconds: float) -> Lease:
    """Return the lease as one that ends so many seconds later."""
    return replace(lease, expires_at=lease.expires_at + seconds) if seconds else lease


class RecordReader:
    """A reader of the records at one moment, valid until its context ends.

    Methods return ``None`` or an empty collection for what does not exist.
    """

    def __init__(
        self, connection: Connection, location: Location, clock: Clock | None = None
    ) -> None:
        """``clock``: of this host, by which the times of leases are given; None: that of the
        database.
        """
        self._connection = connection
        self._location = location
        self._clock = clock if location.file is None else None

    # --- nodes ------------------------------------------------------------------------------------

    def node_versions(self, nodes: Collection[ProviderUuid]) -> Mapping[ProviderUuid, int]:
        """Return the versions of those of these nodes that exist."""
        return {
            uuid: version
            for some in _chunks(nodes)
            for uuid, version in self._connection.execute(queries.NODE_VERSIONS, {"some": some})
        }

    def quiet_versions(self, nodes: Collection[ProviderUuid]) -> Mapping[ProviderUuid, int]:
        """Return the versions of those of these nodes that exist, without the nodes from or to
        which a move is under way.
        """
        return {
            uuid: version
            for some in _chunks(nodes)
            for uuid, version in self._connection.execute(queries.QUIET_VERSIONS, {"some": some})
        }

    def load(self, node: ProviderUuid) -> NodeRecords | None:
        """Return all records of one node.

        :raises StoreError: the node's own record is invalid.
        """
        own = self.node(node)
        if own is None:
            return None
        here = {"node": node}
        claims = self._read(CLAIMS, queries.CLAIMS_HERE, here)
        instances = self._read(INSTANCES, queries.INSTANCES_HERE, here)
        migrations = self._read(MIGRATIONS, queries.MIGRATIONS_HERE, here)
        devices = self._read(DEVICES, queries.DEVICES_HERE, here)
        units = self._read(UNITS, queries.UNITS_HERE, here)
        found = (claims, instances, migrations, devices, units)
        return NodeRecords(
            own,
            claims.records,
            instances.records,
            migrations.records,
            devices.records,
            units.records,
            tuple(record for batch in found for record in batch.damaged),
        )

    def node(self, uuid: ProviderUuid) -> ComputeNode | None:
        """Return one node, deleted or not."""
        return self._one(NODES, NODES.one, key=uuid)

    def node_named(self, host: str, name: str) -> ComputeNode | None:
        """Return the node of that name on that host; a deleted one if there is no other."""
        return self._one(NODES, queries.NODE_BY_NAME, host=host, name=name)

    def nodes(self, host: str | None = None) -> RecordBatch[ComputeNode]:
        """Return all nodes that are not deleted, or those of one host."""
        return self._read(
            NODES,
            queries.ALL_NODES if host is None else queries.NODES_OF_HOST,
            {"host": host} if host is not None else {},
        )

    def lease(self, node: ProviderUuid) -> Lease | None:
        """Return the lease of the node."""
        lease = self._one(LEASES, LEASES.one, key=node)
        return None if lease is None else later(lease, self.ahead())

    def leases(self, host: str) -> Sequence[Lease]:
        """Return all leases that the host has, or had last."""
        found = self._read(LEASES, queries.LEASES_OF_HOST, {"host": host}).records
        ahead = self.ahead() if found else 0.0
        return [later(lease, ahead) for lease in found]

    def ahead(self) -> float:
        """Return by how many seconds the clock of this host is ahead of that of the database
        server, by which all hosts judge leases.
        """
        if self._clock is None:
            return 0.0
        return self._clock() - float(self._connection.execute(queries.SERVER_CLOCK).scalar_one())

    def nodes_of(self, host: str) -> Collection[ProviderUuid]:
        """Return the nodes of the host that are not deleted."""
        return [
            ProviderUuid(uuid)
            for uuid in self._connection.execute(
                queries.NODE_UUIDS_OF_HOST, {"host": host}
            ).scalars()
        ]

    def nodes_with_instances(self, host: str) -> Collection[ProviderUuid]:
        """Return the nodes on which the host has instances."""
        return [
            ProviderUuid(uuid)
            for uuid in self._connection.execute(
                queries.NODES_WITH_INSTANCES, {"host": host}
            ).scalars()
        ]

    # --- one by one -------------------------------------------------------------------------------

    def instance(self, uuid: ConsumerUuid) -> Instance | None:
        """Return one instance, deleted or not."""
        return self._one(INSTANCES, INSTANCES.one, key=uuid)

    def migration(self, uuid: ConsumerUuid) -> Migration | None:
        """Return one migration, ended or not."""
        return self._one(MIGRATIONS, MIGRATIONS.one, key=uuid)

    def claim(self, id: str) -> Claim | None:
        """Return one claim, open or released."""
        return self._one(CLAIMS, CLAIMS.one, key=id)

    def claim_of(self, migration: ConsumerUuid) -> Claim | None:
        """Return the latest claim of a migration, open or released; the move is continued by its
        id.
        """
        return self._one(CLAIMS, queries.CLAIM_OF_MIGRATION, key=migration)

    def claims_of(self, instance: ConsumerUuid) -> tuple[Claim, ...]:
        """Return the instance's open claims on all nodes, in the order of their creation.

        :raises StoreError: one of them is invalid.
        """
        return self._refuse_damaged(
            self._read(CLAIMS, queries.CLAIMS_OF_INSTANCE, {"key": instance})
        )

    def held_by(
        self, claims: Collection[str]
    ) -> tuple[tuple[DeviceRecord, ...], tuple[UnitRecord, ...]]:
        """Return the devices and units that these claims hold.

        :raises StoreError: one of them is invalid.
        """
        devices = self._refuse_damaged(self._some(DEVICES, queries.DEVICES_HELD, claims))
        return devices, self._refuse_damaged(self._some(UNITS, queries.UNITS_HELD, claims))

    # --- consumers --------------------------------------------------------------------------------

    def consumers(self, uuids: Collection[ConsumerUuid]) -> RecordedConsumers:
        """Return the instances and migrations among these consumers, and the migrations of these
        instances.

        An instance counts as unreadable if one of its migrations is.
        """
        instances, migrations = (
            self._some(INSTANCES, queries.SOME_INSTANCES, uuids),
            self._some(MIGRATIONS, queries.SOME_MIGRATIONS, uuids),
        )
        damaged = [record.key for record in migrations.damaged]
        unreadable = {*damaged, *(record.key for record in instances.damaged)}
        for some in _chunks(damaged):
            unreadable.update(
                self._connection.execute(queries.INSTANCES_OF_MIGRATIONS, {"some": some}).scalars()
            )
        return RecordedConsumers(
            {instance.uuid: instance for instance in instances.records},
            {migration.uuid: migration for migration in migrations.records},
            frozenset(map(ConsumerUuid, unreadable)),
        )

    def evacuations_from(self, host: str, node: ProviderUuid) -> tuple[Migration, ...]:
        """Return the evacuations from a node of a host that are done and not cleared yet. An
        invalid record is ignored, because it proves nothing.
        """
        return self._read(
            MIGRATIONS, queries.EVACUATIONS_FROM, {"host": host, "node": node}
        ).records

    def has_records(self) -> bool:
        """Return whether there is any record of an instance or a claim, on any node, including
        those that have ended.
        """
        return bool(self._connection.execute(queries.HAS_RECORDS).scalar_one())

    # --- lists ------------------------------------------------------------------------------------

    def instances(
        self, nodes: Nodes = None, marker: str = "", limit: int = PAGE
    ) -> RecordBatch[Instance]:
        """Return at most ``limit`` instances after ``marker`` in the order of their uuids: all, or
        those of some nodes, including deleted ones.
        """
        return INSTANCES.page(self._connection, marker, limit, *_on(nodes, INSTANCE.c.node))

    def migrations(
        self, nodes: Nodes = None, marker: str = "", limit: int = PAGE
    ) -> RecordBatch[Migration]:
        """Return at most ``limit`` migrations after ``marker`` in the order of their uuids: all, or
        those from or to some nodes, including ended ones.
        """
        return MIGRATIONS.page(
            self._connection,
            marker,
            limit,
            *_on(nodes, MIGRATION.c.source_node, MIGRATION.c.dest_node),
        )

    def claims(
        self, nodes: Nodes = None, marker: str = "", limit: int = PAGE, *, released: bool = False
    ) -> RecordBatch[Claim]:
        """Return at most ``limit`` open claims after ``marker`` in the order of their ids: all, or
        those on some nodes; with ``released`` also released ones.
        """
        wanted = () if released else (CLAIM.c.state != "released",)
        return CLAIMS.page(self._connection, marker, limit, *wanted, *_on(nodes, CLAIM.c.node))

    def devices(
        self, nodes: Nodes = None, marker: str = "", limit: int = PAGE
    ) -> RecordBatch[DeviceRecord]:
        """Return at most ``limit`` devices after ``marker`` in the order of nodes and addresses:
        all, or those of some nodes.
        """
        return DEVICES.page(self._connection, marker, limit, *_on(nodes, DEVICE.c.node))

    # --- parts ------------------------------------------------------------------------------------

    def _read(
        self, table: RecordTable[Record], statement: Executable, values: Mapping[str, Any]
    ) -> RecordBatch[Record]:
        return table.read(self._connection, statement, values)

    def _some(
        self, table: RecordTable[Record], statement: Executable, keys: Collection[str]
    ) -> RecordBatch[Record]:
        found = [self._read(table, statement, {"some": some}) for some in _chunks(keys)]
        return RecordBatch(
            tuple(record for part in found for record in part.records),
            tuple(record for part in found for record in part.damaged),
        )

    def _one(
        self, table: RecordTable[Record], statement: Executable, **values: str
    ) -> Record | None:
        return next(iter(self._refuse_damaged(self._read(table, statement, values))), None)

    def _refuse_damaged(self, found: RecordBatch[Record]) -> tuple[Record, ...]:
        for record in found.damaged:
            raise damaged_record(self._location, record)
        return found.records


def every(page: Callable[[str], RecordBatch[Record]]) -> Iterator[Record]:
    """Yield all records of a list; ``page`` returns the page after a marker."""
    found = page("")
    yield from found.records
    while found.last:
        found = page(found.last)
        yield from found.records


def _on(nodes: Nodes, *columns: Column[Any]) -> list[ColumnElement[bool]]:
    return [] if nodes is None else [or_(*(column.in_(nodes) for column in columns))]


def _chunks(keys: Collection[Key]) -> Iterator[list[Key]]:
    left = iter(keys)
    while some := list(islice(left, CHUNK)):
        yield some
