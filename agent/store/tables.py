"""The tables of the store: the records, and what is kept of Placement; and whether a database has
them.

Every record has a ``version``, see :mod:`agent.model.node_records`. Nodes that other agents keep in
another store have no row here; therefore only claims, devices and units refer to their node.
"""

import re

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Connection,
    Engine,
    Index,
    MetaData,
    String,
    Table,
    Text,
    insert,
    inspect,
    select,
    text,
)

from agent.errors import StoreError
from agent.model.devices import DeviceRecord, UnitRecord
from agent.model.instance import Instance
from agent.model.mirror import ServerCapabilities
from agent.model.node_records import ENDED, Claim, ComputeNode, Lease, Migration
from agent.model.report import LastFound
from agent.store.engines import BUSY_SECONDS, Location, begin
from agent.store.record_table import METADATA, UUID, Mapper, RecordTable, quote
from agent.store.store_errors import damaged_store, other_schema

# --- records --------------------------------------------------------------------------------------

NODES = RecordTable(
    "compute_node",
    ComputeNode,
    key=["uuid"],
    not_negative=["vcpus", "memory_mb", "local_gb", "failed_builds"],
)
INSTANCES = RecordTable("instance", Instance, key=["uuid"])
MIGRATIONS = RecordTable(
    "migration", Migration, key=["uuid"], references={"instance": "instance.uuid"}
)
CLAIMS = RecordTable(
    "claim",
    Claim,
    key=["id"],
    references={
        "instance": "instance.uuid",
        "node": "compute_node.uuid",
        "migration": "migration.uuid",
        "origin": "migration.uuid",
    },
    not_negative=["memory_mb", "vcpus", "disk_mb"],
    spread=["amounts"],
)
# One holder per row, so that a second holder is a version conflict and not a second row.
DEVICES = RecordTable(
    "device",
    DeviceRecord,
    CheckConstraint("(holder IS NULL) = (state = 'available')", name="holder"),
    key=["node", "address"],
    references={"node": "compute_node.uuid", "holder": "claim.id"},
)
UNITS = RecordTable(
    "unit",
    UnitRecord,
    key=["node", "provider", "resource_class", "identifier"],
    references={"node": "compute_node.uuid", "holder": "claim.id"},
)
# A lease is taken before there is a record of the node.
LEASES = RecordTable("lease", Lease, key=["node"])

COMPUTE_NODE, INSTANCE, MIGRATION = NODES.table, INSTANCES.table, MIGRATIONS.table
CLAIM, DEVICE, UNIT, LEASE = CLAIMS.table, DEVICES.table, UNITS.table, LEASES.table

# Queries use the same conditions as the indexes, because both databases use a partial index only if
# they recognize its condition.
NOT_DELETED = text("NOT deleted")
OPEN = text("state <> 'released'")
NOT_ENDED = text(f"status NOT IN ({quote(ENDED)})")
NOT_CLEARED = text("type = 'evacuation' AND status = 'done' AND NOT cleared")


# Those of released claims too, because a move is found by its migration, and before a row is
# removed all rows that may refer to it are searched.
for _name, _columns, _where in (
    ("uq_compute_node_host_name", [COMPUTE_NODE.c.host, COMPUTE_NODE.c.name], NOT_DELETED),
    ("ix_instance_node", [INSTANCE.c.node], NOT_DELETED),
    ("ix_migration_source_node", [MIGRATION.c.source_node], NOT_ENDED),
    ("ix_migration_not_cleared", [MIGRATION.c.source_node], NOT_CLEARED),
    ("ix_migration_dest_node", [MIGRATION.c.dest_node], NOT_ENDED),
    ("ix_claim_node", [CLAIM.c.node], OPEN),
    ("ix_claim_instance", [CLAIM.c.instance], OPEN),
    ("ix_claim_origin", [CLAIM.c.origin], None),
    ("ix_claim_migration", [CLAIM.c.migration], None),
    ("ix_claim_of_instance", [CLAIM.c.instance], None),
    ("ix_migration_instance", [MIGRATION.c.instance], None),
    ("ix_device_holder", [DEVICE.c.holder], None),
    ("ix_unit_holder", [UNIT.c.holder], None),
):
    Index(_name, *_columns, unique=_name.startswith("uq_"), sqlite_where=_where)

# --- identity -------------------------------------------------------------------------------------

# Keyed by host, because hosts that share a database must not find each other's identity.
IDENTITY = Table(
    "identity",
    METADATA,
    Column("host", Text, primary_key=True),
    Column("uuid", UUID, nullable=False),
)

# --- Placement ------------------------------------------------------------------------------------


CAPABILITIES = Mapper(ServerCapabilities)

ENDPOINT = Table("endpoint", METADATA, *CAPABILITIES.columns(["endpoint"]))
MIRROR = Table(
    "mirror",
    METADATA,
    Column("endpoint", Text, primary_key=True),
    Column("root", UUID, primary_key=True),
    Column("contents", Text, nullable=False),
)
JOURNAL = Table(
    "journal",
    METADATA,
    Column("root", UUID, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("empty", Boolean, nullable=False),
    Column("contents", Text, nullable=False),
)

FOUND = Mapper(LastFound)

# What the audits found last, for those who ask without a daemon.
LAST_AUDIT = Table("last_audit", METADATA, *FOUND.columns(["root"]))

# --- the schema's number --------------------------------------------------------------------------

# A store with another number is refused, whichever is greater.
VERSION = "0020"
# Written in the header of every SQLite file of the agent ("cnag"), so that a foreign file is
# never taken for a store.
APPLICATION_ID = 0x636E6167
# In a metadata object of its own, because it has no contents of the store.
VERSIONS = Table(
    "compute_node_agent_schema",
    MetaData(),
    Column("version_num", String(32), primary_key=True),
)


CREATION_SECONDS = 120
"""How long an agent waits for another one that creates the tables."""


def has_tables(engine: Engine, location: Location) -> bool:
    """Return whether the database has the tables of this agent; false if it is empty. Nothing is
    changed.

    :raises StoreError: it belongs to somebody else, is damaged, or has another schema.
    :raises sqlalchemy.exc.SQLAlchemyError: it cannot be read.
    """
    with engine.connect() as connection:
        _lock(connection, shared=True)
        return _has_tables(connection, location)


def _has_tables(connection: Connection, location: Location) -> bool:
    if (
        location.file is not None
        and connection.exec_driver_sql("PRAGMA application_id").scalar() != APPLICATION_ID
    ):
        raise _not_ours(location)
    inspector = inspect(connection)
    if not inspector.has_table(VERSIONS.name):
        if location.file is not None:
            raise damaged_store(location, "it has no schema version")
        if inspector.get_table_names():
            raise _not_ours(location)
        return False
    found = list(connection.execute(select(VERSIONS.c.version_num)).scalars())
    if not found and location.file is None:
        return False
    if len(found) != 1 or not re.fullmatch(r"\d{4}", str(found[0])):
        raise damaged_store(location, f"its schema version is {', '.join(map(repr, found))}")
    if found[0] != VERSION:
        raise other_schema(location, found[0], VERSION)
    return True


def check_sound(engine: Engine, location: Location) -> None:
    """Check the integrity of a SQLite file, which takes about 30 ms per MiB.

    :raises StoreError: the file is damaged.
    :raises sqlalchemy.exc.SQLAlchemyError: the file cannot be read.
    """
    if location.file is not None:
        with engine.connect() as connection:
            # A record in a state that is unknown here is no reason to refuse the others: it is set
            # aside when it is read.
            connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
            # Not the quick check, which does not notice an index that lacks rows of its table:
            # claims that would not be counted.
            found = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
            connection.exec_driver_sql("PRAGMA ignore_check_constraints = OFF")
        if found != "ok":
            raise damaged_store(location, str(found))


def create_tables(engine: Engine, location: Location | None = None) -> None:
    """Create all tables, in one transaction.

    :param location: given if others may create them at the same time.
    :raises StoreError: others have created them, with another schema.
    """
    with engine.begin() as connection:
        begin(connection, writes=True)
        _lock(connection)
        if location is None or not _has_tables(connection, location):
            if connection.dialect.name == "postgresql":
                _tell_server_of_partial_indexes()
            METADATA.create_all(connection)
            VERSIONS.create(connection)
            connection.execute(insert(VERSIONS).values(version_num=VERSION))


def _tell_server_of_partial_indexes() -> None:
    # Only now, because SQLAlchemy loads all that it has for a database that is named.
    for table in METADATA.tables.values():
        for index in table.indexes:
            where = index.dialect_options["sqlite"]["where"]
            index.dialect_options["postgresql"]["where"] = where


def _lock(connection: Connection, *, shared: bool = False) -> None:
    """Keep other agents from creating the tables on a database server until the transaction ends;
    ``shared`` lets them look.

    SQLite files are protected by the run lock.
    """
    if connection.dialect.name == "postgresql":
        # Because agents that start at the same time would create the same tables, and see each
        # other's unfinished schema.
        connection.execute(text(f"SET LOCAL lock_timeout = '{CREATION_SECONDS}s'"))
        connection.execute(
            text(f"SELECT pg_advisory_xact_lock{'_shared' if shared else ''}(:key)"),
            {"key": APPLICATION_ID},
        )
        connection.execute(text(f"SET LOCAL lock_timeout = '{BUSY_SECONDS}s'"))


def _not_ours(location: Location) -> StoreError:
    return StoreError(
        f"{location.option}: {location} is not a store of this agent",
        f"move it away, or point {location.option} elsewhere",
        place=str(location),
    )
