"""The records of a store: read at one moment, or changed in one short transaction."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from sqlalchemy import Connection, bindparam, update

from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import RecordChanges
from agent.store import ended_records
from agent.store import record_queries as queries
from agent.store.location import Location
from agent.store.reading import RecordReader
from agent.store.record_schema import COMPUTE_NODE, MIGRATION
from agent.store.rows import CLAIMS, DEVICES, INSTANCES, LEASES, MIGRATIONS, NODES, UNITS
from agent.store.store import Store

# A node whose claims changed has to be published.
TOUCH = (
    update(COMPUTE_NODE)
    .where(COMPUTE_NODE.c.uuid == bindparam("touched"))
    .values(version=COMPUTE_NODE.c.version + 1, dirty=True)
)

# The higher version shows the change to agents that have read the record before.
CLEARED = (
    update(MIGRATION)
    .where(MIGRATION.c.uuid == bindparam("uuid_"))
    .values(cleared=True, clearing=None, version=MIGRATION.c.version + 1)
)
CLEARING = (
    update(MIGRATION)
    .where(MIGRATION.c.uuid == bindparam("uuid_"))
    .values(clearing=bindparam("clearing_"), version=MIGRATION.c.version + 1)
)


class Transaction(RecordReader):
    """Reads and writes of records. Locked nodes are not changed by others before its end."""

    def __init__(self, connection: Connection, location: Location) -> None:
        super().__init__(connection, location)
        self._locked: dict[ProviderUuid, int] = {}

    def lock(self, nodes: Collection[ProviderUuid]) -> None:
        """Lock these nodes, waiting until nobody else has them locked.

        SQLite needs no such lock, because it has only one writer.
        """
        self._locked = dict(
            self._connection.execute(queries.NODES_LOCKED, {"some": sorted(nodes)}).all()
        )

    def node_versions(self, nodes: Collection[ProviderUuid]) -> Mapping[ProviderUuid, int]:
        """Return the versions of those of these nodes that exist; versions of locked nodes are
        known already.
        """
        known = {uuid: self._locked[uuid] for uuid in nodes if uuid in self._locked}
        others = [uuid for uuid in nodes if uuid not in known]
        return {**known, **super().node_versions(others)} if others else known

    def write(self, changes: RecordChanges) -> None:
        """Write all changes, and raise the versions of the touched nodes.

        :raises RecordConflict: a record was written by somebody else since it was read, or exists
            already.
        """
        to = self._connection
        self._locked = {}
        # Rows that are referred to are written before the rows that refer to them, and rows are
        # deleted before others take their place.
        INSTANCES.write(to, changes.instances)
        MIGRATIONS.write(to, changes.migrations)
        NODES.write(to, changes.nodes)
        touched = sorted(changes.touched - {node.uuid for node in changes.nodes})
        if touched:
            to.execute(TOUCH, [{"touched": uuid} for uuid in touched])
        CLAIMS.write(to, changes.claims)
        DEVICES.delete(to, changes.dropped_devices)
        UNITS.delete(to, changes.dropped_units)
        DEVICES.write(to, changes.devices)
        UNITS.write(to, changes.units)
        LEASES.write(to, changes.leases)


class Records:
    """Access to the records of a store, which threads may share."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @contextmanager
    def reading(self) -> Iterator[RecordReader]:
        """Open a reader; it blocks no writer.

        :raises StoreError: the store cannot be read.
        """
        with self._store.reading() as connection:
            yield RecordReader(connection, self._store.location)

    @contextmanager
    def transaction(self, nodes: Collection[ProviderUuid]) -> Iterator[Transaction]:
        """Open a transaction with exclusive use of the records of these nodes.

        It is durable once the context has ended; an exception rolls it back.

        :raises RecordConflict: another transaction wrote first.
        :raises StoreError: the store cannot be written.
        """
        with self._store.writing() as connection:
            transaction = Transaction(connection, self._store.location)
            transaction.lock(nodes)
            yield transaction

    def clear(self, migrations: Collection[ConsumerUuid]) -> None:
        """Record that these evacuations are cleared. Nothing else of them changes, not even the
        time of their last change.

        :raises StoreError: the store cannot be written.
        """
        with self._store.writing() as connection:
            connection.execute(CLEARED, [{"uuid_": uuid} for uuid in sorted(migrations)])

    def intend_clearing(self, clearing: Mapping[ConsumerUuid, int | None]) -> None:
        """Record for these evacuations the generation of the consumer with which they are being
        cleared, ``None`` if they are not.

        :raises StoreError: the store cannot be written.
        """
        with self._store.writing() as connection:
            connection.execute(
                CLEARING,
                [
                    {"uuid_": uuid, "clearing_": generation}
                    for uuid, generation in sorted(clearing.items())
                ],
            )

    def remove_ended(self, before: float) -> int:
        """Remove records that ended before ``before`` (seconds since the epoch) and that nothing
        refers to. Return the number of removed rows.

        :raises StoreError: the store cannot be written.
        """
        with self._store.writing() as connection:
            return ended_records.remove(connection, before)
