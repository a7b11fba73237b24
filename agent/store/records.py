"""The records: read at one moment, or worked on alone in one short transaction."""

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

# What was promised or given back is to be published.
TOUCH = (
    update(COMPUTE_NODE)
    .where(COMPUTE_NODE.c.uuid == bindparam("touched"))
    .values(version=COMPUTE_NODE.c.version + 1, dirty=True)
)

# By its version whoever has read the record before sees that it changed.
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
    """Reads and writes. What it has read of its nodes nobody else changes before its end."""

    def __init__(self, connection: Connection, location: Location) -> None:
        super().__init__(connection, location)
        self._locked: dict[ProviderUuid, int] = {}

    def lock(self, nodes: Collection[ProviderUuid]) -> None:
        """Wait until nobody else works on these nodes. SQLite has one writer anyway."""
        self._locked = dict(
            self._connection.execute(queries.NODES_LOCKED, {"some": sorted(nodes)}).all()
        )

    def node_versions(self, nodes: Collection[ProviderUuid]) -> Mapping[ProviderUuid, int]:
        """The version of each of these nodes that there is; of those that are locked it is known
        already.
        """
        known = {uuid: self._locked[uuid] for uuid in nodes if uuid in self._locked}
        asked = [uuid for uuid in nodes if uuid not in known]
        return {**known, **super().node_versions(asked)} if asked else known

    def write(self, changes: RecordChanges) -> None:
        """Write all of them, and let the versions of the nodes that are touched grow.

        :raises RecordConflict: a record was written by somebody else since it was read, or exists
            already.
        """
        to = self._connection
        self._locked = {}
        # What is referred to before what refers to it, and what is dropped before what takes its
        # place.
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
    """The records of a store. Threads may share it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @contextmanager
    def reading(self) -> Iterator[RecordReader]:
        """Read without holding anybody up.

        :raises StoreError: the store cannot be read.
        """
        with self._store.reading() as connection:
            yield RecordReader(connection, self._store.location)

    @contextmanager
    def transaction(self, nodes: Collection[ProviderUuid]) -> Iterator[Transaction]:
        """Work on the records of these nodes alone. Durable once it has ended; an exception undoes
        all of it.

        :raises RecordConflict: another transaction was faster.
        :raises StoreError: the store cannot be written.
        """
        with self._store.writing() as connection:
            transaction = Transaction(connection, self._store.location)
            transaction.lock(nodes)
            yield transaction

    def clear(self, migrations: Collection[ConsumerUuid]) -> None:
        """Write down that these evacuations are cleared. Nothing else of them changes, and not when
        they were changed last.

        :raises StoreError: the store cannot be written.
        """
        with self._store.writing() as connection:
            connection.execute(CLEARED, [{"uuid_": one} for one in sorted(migrations)])

    def intend_clearing(self, clearing: Mapping[ConsumerUuid, int | None]) -> None:
        """Write down by which generation of their consumer these evacuations are being cleared,
        None for those that are not.

        :raises StoreError: the store cannot be written.
        """
        with self._store.writing() as connection:
            connection.execute(
                CLEARING,
                [
                    {"uuid_": one, "clearing_": generation}
                    for one, generation in sorted(clearing.items())
                ],
            )

    def remove_ended(self, before: float) -> int:
        """Remove what ended before that time, in seconds since the epoch, and that nothing refers
        to. Returns how many records.

        :raises StoreError: the store cannot be written.
        """
        with self._store.writing() as connection:
            return ended_records.remove(connection, before)
