"""Reading of records, all at one moment. An invalid record is set aside when many are read, and
raised as an error when it is read by itself.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import (
    BindParameter,
    Column,
    ColumnElement,
    Connection,
    Executable,
    Select,
    and_,
    bindparam,
    exists,
    func,
    or_,
    select,
    text,
    union,
)

from agent.model.devices import DeviceRecord, UnitRecord
from agent.model.instance import Instance
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import (
    Claim,
    ComputeNode,
    Lease,
    Migration,
    NodeRecords,
    RecordedConsumers,
)
from agent.store.engines import Location
from agent.store.record_table import Record, RecordBatch, RecordTable
from agent.store.store_errors import damaged_record
from agent.store.tables import (
    CLAIM,
    CLAIMS,
    COMPUTE_NODE,
    DEVICE,
    DEVICES,
    INSTANCE,
    INSTANCES,
    JOURNAL,
    LEASE,
    LEASES,
    MIGRATION,
    MIGRATIONS,
    MIRROR,
    NODES,
    NOT_CLEARED,
    NOT_DELETED,
    NOT_ENDED,
    OPEN,
    UNIT,
    UNITS,
)

KEY: BindParameter[str] = bindparam("key")
NODE: BindParameter[str] = bindparam("node")
HOST: BindParameter[str] = bindparam("host")
NAME: BindParameter[str] = bindparam("name")
SOME: BindParameter[list[str]] = bindparam("some", expanding=True)

SERVER_CLOCK = text("SELECT extract(epoch FROM clock_timestamp())")
"""Seconds since the epoch, on a PostgreSQL."""

# --- compute nodes --------------------------------------------------------------------------------

# A deleted node may have had the same name.
NODE_BY_NAME = (
    NODES.all.where(COMPUTE_NODE.c.host == HOST, COMPUTE_NODE.c.name == NAME)
    .order_by(COMPUTE_NODE.c.deleted, COMPUTE_NODE.c.uuid)
    .limit(1)
)
NODE_VERSIONS = (
    select(COMPUTE_NODE.c.uuid, COMPUTE_NODE.c.version)
    .where(COMPUTE_NODE.c.uuid.in_(SOME))
    .order_by(COMPUTE_NODE.c.uuid)
)
KNOWN_NODES = union(
    *(
        select(node).where(node.in_(SOME))
        for node in (COMPUTE_NODE.c.uuid, LEASE.c.node, JOURNAL.c.root, MIRROR.c.root)
    )
)
# In the order of their uuids, so that two transactions that lock the same nodes do not deadlock.
NODES_LOCKED = NODE_VERSIONS.with_for_update()
QUIET_VERSIONS = select(COMPUTE_NODE.c.uuid, COMPUTE_NODE.c.version).where(
    COMPUTE_NODE.c.uuid.in_(SOME),
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
NODES_OF_HOST = NODES.all.where(COMPUTE_NODE.c.host == HOST, NOT_DELETED).order_by(
    COMPUTE_NODE.c.uuid
)
ALL_NODES = NODES.all.where(NOT_DELETED).order_by(COMPUTE_NODE.c.uuid)
NODE_UUIDS_OF_HOST = select(COMPUTE_NODE.c.uuid).where(COMPUTE_NODE.c.host == HOST, NOT_DELETED)
NODES_WITH_INSTANCES = (
    select(INSTANCE.c.node)
    .where(INSTANCE.c.host == HOST, INSTANCE.c.node.is_not(None), NOT_DELETED)
    .distinct()
)
LEASES_OF_HOST = LEASES.all.where(LEASE.c.host == HOST)

HAS_RECORDS = select(or_(select(INSTANCE.c.uuid).exists(), select(CLAIM.c.id).exists()))

# --- all of one node ------------------------------------------------------------------------------


def _claimed_here(column: Column[Any]) -> Select[Any]:
    return select(column).where(CLAIM.c.node == NODE, OPEN)


CLAIMS_HERE = CLAIMS.all.where(CLAIM.c.node == NODE, OPEN).order_by(CLAIM.c.created_at, CLAIM.c.id)
INSTANCES_HERE = INSTANCES.all.where(
    or_(
        and_(INSTANCE.c.node == NODE, NOT_DELETED),
        INSTANCE.c.uuid.in_(_claimed_here(CLAIM.c.instance)),
    )
).order_by(INSTANCE.c.created_at, INSTANCE.c.uuid)
MIGRATIONS_HERE = MIGRATIONS.all.where(
    or_(
        and_(MIGRATION.c.source_node == NODE, NOT_ENDED),
        and_(MIGRATION.c.dest_node == NODE, NOT_ENDED),
        MIGRATION.c.uuid.in_(_claimed_here(CLAIM.c.migration)),
    )
).order_by(MIGRATION.c.created_at, MIGRATION.c.uuid)
DEVICES_HERE = DEVICES.all.where(DEVICE.c.node == NODE).order_by(DEVICE.c.address)
UNITS_HERE = UNITS.all.where(UNIT.c.node == NODE).order_by(
    UNIT.c.provider, UNIT.c.resource_class, UNIT.c.identifier
)
OF_NODE: Sequence[tuple[RecordTable[Any], Select[Any]]] = (
    (CLAIMS, CLAIMS_HERE),
    (INSTANCES, INSTANCES_HERE),
    (MIGRATIONS, MIGRATIONS_HERE),
    (DEVICES, DEVICES_HERE),
    (UNITS, UNITS_HERE),
)
"""All records of a node beside its own, in the order of the fields of NodeRecords."""

# --- one by one, and what belongs to it -----------------------------------------------------------

SOME_INSTANCES = INSTANCES.all.where(INSTANCE.c.uuid.in_(SOME))
SOME_MIGRATIONS = MIGRATIONS.all.where(
    or_(MIGRATION.c.uuid.in_(SOME), MIGRATION.c.instance.in_(SOME))
)
EVACUATIONS_FROM = MIGRATIONS.all.where(
    MIGRATION.c.source_compute == HOST, MIGRATION.c.source_node == NODE, NOT_CLEARED
).order_by(MIGRATION.c.uuid)
INSTANCES_OF_MIGRATIONS = select(MIGRATION.c.instance).where(MIGRATION.c.uuid.in_(SOME))
# A migration that was claimed again has several.
CLAIM_OF_MIGRATION = (
    CLAIMS.all.where(CLAIM.c.origin == KEY, CLAIM.c.purpose == "move")
    .order_by(CLAIM.c.created_at.desc(), CLAIM.c.id)
    .limit(1)
)
CLAIMS_OF_INSTANCE = CLAIMS.all.where(CLAIM.c.instance == KEY, OPEN).order_by(
    CLAIM.c.created_at, CLAIM.c.id
)
DEVICES_HELD = DEVICES.all.where(DEVICE.c.holder.in_(SOME)).order_by(
    DEVICE.c.node, DEVICE.c.address
)
CLAIM_ID: BindParameter[str | None] = bindparam("claim", type_=CLAIM.c.id.type)
_GUEST = select(
    func.coalesce(
        bindparam("instance", type_=INSTANCE.c.uuid.type),
        select(CLAIM.c.instance).where(CLAIM.c.id == CLAIM_ID).scalar_subquery(),
    ).label("uuid")
).subquery()
# All that an operation asks first, because each statement costs more than the rows that it finds.
SUBJECT = (
    select(COMPUTE_NODE.c.version, *CLAIM.c, *INSTANCE.c)
    .select_from(
        _GUEST.outerjoin(COMPUTE_NODE, COMPUTE_NODE.c.uuid == NODE)
        .outerjoin(
            CLAIM,
            or_(
                CLAIM.c.id == CLAIM_ID,
                # Not as a parameter: SQLite would compile the statement anew each time, because its
                # value decides whether the index of open claims can be used.
                and_(CLAIM.c.instance == _GUEST.c.uuid, OPEN),
            ),
        )
        .outerjoin(INSTANCE, INSTANCE.c.uuid == _GUEST.c.uuid)
    )
    .order_by(CLAIM.c.created_at, CLAIM.c.id)
)
UNITS_HELD = UNITS.all.where(UNIT.c.holder.in_(SOME)).order_by(
    UNIT.c.node, UNIT.c.provider, UNIT.c.resource_class, UNIT.c.identifier
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
        self._versions: dict[ProviderUuid, int] = {}
        """The versions of nodes that are known, because they cannot change before the end."""

    # --- nodes ------------------------------------------------------------------------------------

    def node_versions(self, nodes: Collection[ProviderUuid]) -> Mapping[ProviderUuid, int]:
        """Return the versions of those of these nodes that exist."""
        for some in _chunks([uuid for uuid in nodes if uuid not in self._versions]):
            self._versions.update(self._connection.execute(NODE_VERSIONS, {"some": some}).all())
        return {uuid: self._versions[uuid] for uuid in nodes if uuid in self._versions}

    def quiet_versions(self, nodes: Collection[ProviderUuid]) -> Mapping[ProviderUuid, int]:
        """Return the versions of those of these nodes that exist, without the nodes from or to
        which a move is under way.
        """
        return {
            uuid: version
            for some in _chunks(nodes)
            for uuid, version in self._connection.execute(QUIET_VERSIONS, {"some": some})
        }

    def unknown(self, nodes: Collection[ProviderUuid]) -> set[ProviderUuid]:
        """Return those of these nodes of which the store has nothing: neither a record nor a lease,
        a journal or a mirror.
        """
        left = set(nodes)
        for some in _chunks(nodes):
            left.difference_update(self._connection.execute(KNOWN_NODES, {"some": some}).scalars())
        return left

    def load(self, node: ProviderUuid) -> NodeRecords | None:
        """Return all records of one node.

        :raises StoreError: the node's own record is invalid.
        """
        own = self.node(node)
        if own is None:
            return None
        found = [self._read(table, here, {"node": node}) for table, here in OF_NODE]
        damaged = tuple(record for batch in found for record in batch.damaged)
        records = NodeRecords(own, *(batch.records for batch in found))
        return replace(records, damaged=damaged)

    def node(self, uuid: ProviderUuid) -> ComputeNode | None:
        """Return one node, deleted or not."""
        return self._one(NODES, NODES.one, key=uuid)

    def node_named(self, host: str, name: str) -> ComputeNode | None:
        """Return the node of that name on that host; a deleted one if there is no other."""
        return self._one(NODES, NODE_BY_NAME, host=host, name=name)

    def nodes(self, host: str | None = None) -> RecordBatch[ComputeNode]:
        """Return all nodes that are not deleted, or those of one host."""
        return self._read(
            NODES,
            ALL_NODES if host is None else NODES_OF_HOST,
            {"host": host} if host is not None else {},
        )

    def lease(self, node: ProviderUuid) -> Lease | None:
        """Return the lease of the node."""
        lease = self._one(LEASES, LEASES.one, key=node)
        return None if lease is None else later(lease, self.ahead())

    def leases(self, host: str) -> Sequence[Lease]:
        """Return all leases that the host has, or had last."""
        found = self._read(LEASES, LEASES_OF_HOST, {"host": host}).records
        ahead = self.ahead() if found else 0.0
        return [later(lease, ahead) for lease in found]

    def ahead(self) -> float:
        """Return by how many seconds the clock of this host is ahead of that of the database
        server, by which all hosts judge leases.
        """
        if self._clock is None:
            return 0.0
        return self._clock() - float(self._connection.execute(SERVER_CLOCK).scalar_one())

    def nodes_of(self, host: str) -> Collection[ProviderUuid]:
        """Return the nodes of the host that are not deleted."""
        return [
            ProviderUuid(uuid)
            for uuid in self._connection.execute(NODE_UUIDS_OF_HOST, {"host": host}).scalars()
        ]

    def nodes_with_instances(self, host: str) -> Collection[ProviderUuid]:
        """Return the nodes on which the host has instances."""
        return [
            ProviderUuid(uuid)
            for uuid in self._connection.execute(NODES_WITH_INSTANCES, {"host": host}).scalars()
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
        return self._one(CLAIMS, CLAIM_OF_MIGRATION, key=migration)

    def claims_of(self, instance: ConsumerUuid) -> tuple[Claim, ...]:
        """Return the instance's open claims on all nodes, in the order of their creation.

        :raises StoreError: one of them is invalid.
        """
        return self._refuse_damaged(self._read(CLAIMS, CLAIMS_OF_INSTANCE, {"key": instance}))

    def held_by(
        self, claims: Collection[str]
    ) -> tuple[tuple[DeviceRecord, ...], tuple[UnitRecord, ...]]:
        """Return the devices and units that these claims hold.

        :raises StoreError: one of them is invalid.
        """
        devices = self._refuse_damaged(self._some(DEVICES, DEVICES_HELD, claims))
        return devices, self._refuse_damaged(self._some(UNITS, UNITS_HELD, claims))

    def subject(
        self, claim: str | None, instance: ConsumerUuid | None, node: ProviderUuid | None
    ) -> tuple[Claim | None, tuple[Claim, ...], Instance | None]:
        """Return a claim, open or released; the open claims of an instance, by default that of the
        claim, on all nodes in the order of their creation; and the instance. The version of
        ``node`` is known afterwards.

        :raises StoreError: one of them is invalid.
        """
        values = {"claim": claim, "instance": instance, "node": node}
        rows = self._connection.execute(SUBJECT, values).all()
        if node is not None and rows[0].version is not None:
            self._versions[node] = rows[0].version
        after_claim = 1 + len(CLAIM.c)
        claims = self._refuse_damaged(
            CLAIMS.batch([row[1:after_claim] for row in rows if row[1] is not None])
        )
        instances = self._refuse_damaged(
            INSTANCES.batch([row[after_claim:] for row in rows[:1] if row[after_claim] is not None])
        )
        named = next((one for one in claims if one.id == claim), None)
        of = instance or (named.instance if named is not None else None)
        return (
            named,
            tuple(one for one in claims if one.open and one.instance == of),
            next(iter(instances), None),
        )

    # --- consumers --------------------------------------------------------------------------------

    def consumers(self, uuids: Collection[ConsumerUuid]) -> RecordedConsumers:
        """Return the instances and migrations among these consumers, and the migrations of these
        instances.

        An instance counts as unreadable if one of its migrations is.
        """
        instances = self._some(INSTANCES, SOME_INSTANCES, uuids)
        migrations = self._some(MIGRATIONS, SOME_MIGRATIONS, uuids)
        damaged = [record.key for record in migrations.damaged]
        unreadable = {*damaged, *(record.key for record in instances.damaged)}
        for some in _chunks(damaged):
            unreadable.update(
                self._connection.execute(INSTANCES_OF_MIGRATIONS, {"some": some}).scalars()
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
        return self._read(MIGRATIONS, EVACUATIONS_FROM, {"host": host, "node": node}).records

    def has_records(self) -> bool:
        """Return whether there is any record of an instance or a claim, on any node, including
        those that have ended.
        """
        return bool(self._connection.execute(HAS_RECORDS).scalar_one())

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
