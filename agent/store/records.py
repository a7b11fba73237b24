"""The records of a store: read at one moment, changed in one short transaction, or removed because
they ended long ago. Rows that others refer to stay.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import add

from sqlalchemy import (
    BindParameter,
    Column,
    ColumnElement,
    Connection,
    Table,
    and_,
    bindparam,
    delete,
    exists,
    insert,
    or_,
    select,
    update,
)

from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import ENDED, RecordChanges
from agent.store import reading
from agent.store.reading import Clock, RecordReader, later
from agent.store.store import Store
from agent.store.tables import (
    CLAIM,
    CLAIMS,
    COMPUTE_NODE,
    DEVICE,
    DEVICES,
    INSTANCE,
    INSTANCES,
    JOURNAL,
    LAST_AUDIT,
    LEASE,
    LEASES,
    MIGRATION,
    MIGRATIONS,
    MIRROR,
    NODES,
    NOT_ENDED,
    UNIT,
    UNITS,
)

# A migration in error does not go on; as long as the location of its guest matters, an open claim
# refers to it.
OVER = [*sorted(ENDED), "error"]
BEFORE: BindParameter[float] = bindparam("before")


def _unused(key: Column[str], *references: Column[str | None]) -> list[ColumnElement[bool]]:
    return [~exists(select(reference).where(reference == key)) for reference in references]


# The instance is on a node of another store, where it may be deleted without notice to this one.
GONE_ELSEWHERE = and_(
    INSTANCE.c.node.is_not(None), INSTANCE.c.node.not_in(select(COMPUTE_NODE.c.uuid))
)
# A node with journal entries stays: something of the agent's is in use in Placement, and has to be
# recognized as the agent's once it is free.
ENDED_NODES = select(COMPUTE_NODE.c.uuid).where(
    COMPUTE_NODE.c.deleted,
    COMPUTE_NODE.c.updated_at < BEFORE,
    *_unused(COMPUTE_NODE.c.uuid, CLAIM.c.node, INSTANCE.c.node),
    ~exists().where(JOURNAL.c.root == COMPUTE_NODE.c.uuid, ~JOURNAL.c.empty),
    ~exists(
        select(MIGRATION.c.uuid).where(
            NOT_ENDED,
            or_(
                MIGRATION.c.source_node == COMPUTE_NODE.c.uuid,
                MIGRATION.c.dest_node == COMPUTE_NODE.c.uuid,
            ),
        )
    ),
)
# An instance whose build failed, or that is in error, has no host any more; a deleted one may lack
# the mark.
CAME_TO_NOTHING = and_(
    INSTANCE.c.host.is_(None),
    INSTANCE.c.node.is_(None),
    INSTANCE.c.vm_state.in_(["building", "error", "deleted"]),
)
KEPT_BY_ROOT = (MIRROR.c.root, JOURNAL.c.root, LAST_AUDIT.c.root, LEASE.c.node)
# In the order of their references.
REMOVALS = (
    # A running move is continued by the id of its claim.
    delete(CLAIM).where(
        CLAIM.c.state == "released",
        CLAIM.c.updated_at < BEFORE,
        ~exists(
            select(MIGRATION.c.uuid).where(
                MIGRATION.c.uuid == CLAIM.c.origin, MIGRATION.c.status.not_in(OVER)
            )
        ),
    ),
    delete(MIGRATION).where(
        MIGRATION.c.status.in_(OVER),
        MIGRATION.c.updated_at < BEFORE,
        *_unused(MIGRATION.c.uuid, CLAIM.c.migration, CLAIM.c.origin),
    ),
    delete(INSTANCE).where(
        or_(INSTANCE.c.deleted, GONE_ELSEWHERE, CAME_TO_NOTHING),
        INSTANCE.c.updated_at < BEFORE,
        *_unused(INSTANCE.c.uuid, CLAIM.c.instance, MIGRATION.c.instance),
    ),
    *(
        delete(key.table).where(key.in_(ENDED_NODES))
        for key in (DEVICE.c.node, UNIT.c.node, *KEPT_BY_ROOT)
    ),
    delete(COMPUTE_NODE).where(COMPUTE_NODE.c.uuid.in_(ENDED_NODES)),
)


def remove_ended(connection: Connection, before: float) -> int:
    """Remove released claims, migrations that ended or failed, instances that are deleted or were
    never built, and deleted nodes, unless they were changed after ``before`` (seconds since the
    epoch). Return the number of rows.
    """
    return sum(connection.execute(removal, {"before": before}).rowcount for removal in REMOVALS)


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

    def lock(self, nodes: Collection[ProviderUuid]) -> None:
        """Lock these nodes, waiting until nobody else has them locked.

        SQLite needs no such lock, because it has only one writer.
        """
        if self._location.file is None:
            locked = self._connection.execute(reading.NODES_LOCKED, {"some": sorted(nodes)})
            self._versions = dict(locked.all())

    def write(self, changes: RecordChanges) -> None:
        """Write all changes, and raise the versions of the touched nodes.

        :raises RecordConflict: a record was written by somebody else since it was read, or exists
            already.
        """
        to = self._connection
        self._versions = {}
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
        if changes.leases:
            ahead = self.ahead()
            LEASES.write(to, [later(lease, -ahead) for lease in changes.leases])

    def change_uuid(
        self, before: ProviderUuid, after: ProviderUuid, running: Collection[ConsumerUuid] = ()
    ) -> Sequence[ConsumerUuid]:
        """Give a node, with all its records, another uuid, which may have records from before.
        Journal and mirror are forgotten, because nothing of the old tree is in the new one.

        Of claims under either uuid that exclude each other, that of a guest that is ``running``
        stays, else of one that was there, else the latest one; the others are released. Return
        their instances.
        """
        to = self._connection
        node = dict(
            to.execute(select(COMPUTE_NODE).where(COMPUTE_NODE.c.uuid == before)).one()._mapping
        )
        # Marked as deleted for as long as the other one has the name.
        marked = {**node, "uuid": after, "deleted": True, "dirty": True}
        there = to.execute(
            update(COMPUTE_NODE)
            .where(COMPUTE_NODE.c.uuid == after)
            .values({**marked, "version": COMPUTE_NODE.c.version + 1})
        )
        if not there.rowcount:
            to.execute(insert(COMPUTE_NODE), marked)
        self._move(UNIT.c.provider, before, after)
        released = self._release_doubled(before, after, running)
        twin = DEVICE.alias()
        used = select(twin.c.node).where(
            twin.c.address == DEVICE.c.address, twin.c.node.in_((before, after)), twin.c.used
        )
        # A device that was used once under either uuid is not given again before it was cleaned.
        to.execute(
            update(DEVICE)
            .where(DEVICE.c.node.in_((before, after)), exists(used))
            .values(used=True, reservation_due=True)
        )
        self._merge(DEVICE, [DEVICE.c.address], before, after)
        self._merge(
            UNIT, [UNIT.c.provider, UNIT.c.resource_class, UNIT.c.identifier], before, after
        )
        for column in (
            INSTANCE.c.node,
            MIGRATION.c.source_node,
            MIGRATION.c.dest_node,
            CLAIM.c.node,
            DEVICE.c.node,
            UNIT.c.node,
        ):
            self._move(column, before, after)
        for column in (*KEPT_BY_ROOT, COMPUTE_NODE.c.uuid):
            to.execute(delete(column.table).where(column == before))
        to.execute(update(COMPUTE_NODE).where(COMPUTE_NODE.c.uuid == after).values(deleted=False))
        return released

    def _release_doubled(
        self, before: ProviderUuid, after: ProviderUuid, running: Collection[ConsumerUuid]
    ) -> Sequence[ConsumerUuid]:
        """Release the claims of which the other node has one that holds the same device or unit, or
        is of the same instance, and that counts more. Return their instances.
        """
        to, both = self._connection, (before, after)
        is_open = and_(CLAIM.c.node.in_(both), CLAIM.c.state != "released")
        claims = {row.id: row for row in to.execute(select(CLAIM).where(is_open))}
        wanted: dict[tuple[str, ...], list[str]] = {}
        for claim in claims.values():
            wanted.setdefault((claim.instance,), []).append(claim.id)
        for columns in (
            (DEVICE.c.address, DEVICE.c.holder),
            (UNIT.c.provider, UNIT.c.resource_class, UNIT.c.identifier, UNIT.c.holder),
        ):
            held = and_(columns[0].table.c.node.in_(both), columns[-1].in_(claims))
            for *key, holder in to.execute(select(*columns).where(held)):
                wanted.setdefault((columns[0].table.name, *key), []).append(holder)

        def weight(claim: str) -> tuple[bool, bool, float]:
            row = claims[claim]
            return row.instance in running, row.state == "consumed", row.updated_at

        lost: set[str] = set()
        for ids in wanted.values():
            node = claims[max(ids, key=weight)].node
            lost.update(claim for claim in ids if claims[claim].node != node)
        to.execute(
            update(CLAIM)
            .where(CLAIM.c.id.in_(lost))
            .values(state="released", version=CLAIM.c.version + 1)
        )
        to.execute(
            update(DEVICE)
            .where(DEVICE.c.holder.in_(lost))
            .values(state="available", holder=None, request=None)
        )
        to.execute(update(UNIT).where(UNIT.c.holder.in_(lost)).values(holder=None))
        return sorted({ConsumerUuid(claims[claim].instance) for claim in lost})

    def _move(self, column: Column[str], before: ProviderUuid, after: ProviderUuid) -> None:
        self._connection.execute(
            update(column.table).where(column == before).values({column: after})
        )

    def _merge(
        self, table: Table, key: list[Column[str]], before: ProviderUuid, after: ProviderUuid
    ) -> None:
        """Of what both nodes have, keep the row that a claim holds, else that of ``after``."""
        for node, other in ((before, after), (after, before)):
            twin = table.alias()
            same = [column == twin.c[column.name] for column in key]
            found = exists(select(twin.c.node).where(twin.c.node == other, *same))
            self._connection.execute(
                delete(table).where(table.c.node == node, table.c.holder.is_(None), found)
            )


class Records:
    """Access to the records of a store, which threads may share. ``clock``: see
    :class:`RecordReader`.
    """

    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        self._store, self._clock = store, clock

    @contextmanager
    def reading(self) -> Iterator[RecordReader]:
        """Open a reader; it blocks no writer.

        :raises StoreError: the store cannot be read.
        """
        with self._store.reading() as connection:
            yield RecordReader(connection, self._store.location, self._clock)

    @contextmanager
    def transaction(self, nodes: Collection[ProviderUuid]) -> Iterator[Transaction]:
        """Open a transaction with exclusive use of the records of these nodes.

        It is durable once the context has ended; an exception rolls it back.

        :raises RecordConflict: another transaction wrote first.
        :raises StoreError: the store cannot be written.
        """
        with self._store.writing() as connection:
            transaction = Transaction(connection, self._store.location, self._clock)
            if nodes:
                transaction.lock(nodes)
            yield transaction

    def add_new_node(self, changes: RecordChanges) -> None:
        """Write the records of a node of which the store has nothing, in the same transaction as
        what else this thread saves inside :meth:`Store.together`.

        :raises RecordConflict: another agent wrote them first.
        :raises StoreError: the store cannot be written.
        """
        self._store.write(self._enter_all, changes)

    def _enter_all(self, connection: Connection, changes: Iterable[RecordChanges]) -> None:
        whole = reduce(add, changes)
        Transaction(connection, self._store.location, self._clock).write(whole)

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
            return remove_ended(connection, before)
