"""The tables of the records: nodes, their claims, and the instances and migrations of these.

Every row has a ``version``, see :mod:`agent.model.node_records`. Mappings and lists are JSON text.
Constraints limit the states of a record, so that no agent counts a state that it does not know.
Nodes that other agents keep in another store have no row here; therefore only claims, devices and
units have a foreign key to their node.
"""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ColumnElement,
    Connection,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TextClause,
    event,
    false,
    text,
)

from agent.model.claim import CLAIM_STATES, ENDED, HALVES, PURPOSES, STATUSES, TYPES
from agent.model.devices import DEVICE_STATES, DEVICE_TYPES, SERVES
from agent.model.instance import TASK_STATES, VM_STATES
from agent.store.metadata import METADATA, OUTSIDE_TEXT


def _quote(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in sorted(words))


def _allow_only(column: str, words: Iterable[str]) -> CheckConstraint:
    return CheckConstraint(f"{column} IN ({_quote(words)})", name=column)


def _not_negative(*columns: str) -> list[CheckConstraint]:
    return [CheckConstraint(f"{column} >= 0", name=column) for column in columns]


def _partial_index(
    name: str, *columns: ColumnElement[Any], where: TextClause, unique: bool = False
) -> None:
    """Define an index of the rows that meet a condition."""
    Index(name, *columns, unique=unique, sqlite_where=where)


@event.listens_for(METADATA, "before_create")
def _set_conditions(_metadata: MetaData, connection: Connection, **_settings: Any) -> None:
    """Set the conditions of the partial indexes for PostgreSQL too. Not where an index is defined,
    because SQLAlchemy then imports its dialect: 2 MiB of an agent whose store is a file.
    """
    if connection.dialect.name == "postgresql":
        for table in METADATA.tables.values():
            for index in table.indexes:
                options = index.dialect_options
                options["postgresql"]["where"] = options["sqlite"]["where"]


# Queries use the same conditions, because both databases use a partial index only if they recognize
# its condition.
NOT_DELETED = text("NOT deleted")
OPEN = text("state <> 'released'")
NOT_ENDED = text(f"status NOT IN ({_quote(ENDED)})")
NOT_CLEARED = text("type = 'evacuation' AND status = 'done' AND NOT cleared")

COMPUTE_NODE = Table(
    "compute_node",
    METADATA,
    Column("uuid", String(36), primary_key=True),
    Column("host", OUTSIDE_TEXT, nullable=False),
    Column("name", OUTSIDE_TEXT, nullable=False),
    Column("host_ip", OUTSIDE_TEXT),
    Column("vcpus", BigInteger),
    Column("memory_mb", BigInteger),
    Column("local_gb", BigInteger),
    Column("hypervisor_type", OUTSIDE_TEXT, nullable=False),
    Column("hypervisor_version", BigInteger, nullable=False),
    Column("cpu_info", OUTSIDE_TEXT, nullable=False),
    Column("cpu_allocation_ratio", Double, nullable=False),
    Column("ram_allocation_ratio", Double, nullable=False),
    Column("disk_allocation_ratio", Double, nullable=False),
    Column("failed_builds", Integer, nullable=False),
    Column("dirty", Boolean, nullable=False),
    Column("deleted", Boolean, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("version", BigInteger, nullable=False),
    *_not_negative("vcpus", "memory_mb", "local_gb", "failed_builds"),
)
_partial_index(
    "uq_compute_node_host_name",
    COMPUTE_NODE.c.host,
    COMPUTE_NODE.c.name,
    unique=True,
    where=NOT_DELETED,
)

INSTANCE = Table(
    "instance",
    METADATA,
    Column("uuid", String(36), primary_key=True),
    Column("project_id", OUTSIDE_TEXT, nullable=False),
    Column("user_id", OUTSIDE_TEXT, nullable=False),
    Column("flavor", Text, nullable=False),
    Column("os_type", OUTSIDE_TEXT),
    Column("host", OUTSIDE_TEXT),
    Column("node", String(36)),
    Column("launched_on", OUTSIDE_TEXT),
    Column("vm_state", String(32), nullable=False),
    Column("task_state", String(32)),
    Column("old_flavor", Text),
    Column("new_flavor", Text),
    Column("image_properties", Text, nullable=False),
    Column("volume_backed", Boolean, nullable=False),
    Column("hidden", Boolean, nullable=False),
    Column("deleted", Boolean, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("version", BigInteger, nullable=False),
    _allow_only("vm_state", VM_STATES),
    _allow_only("task_state", TASK_STATES),
)
_partial_index("ix_instance_node", INSTANCE.c.node, where=NOT_DELETED)

MIGRATION = Table(
    "migration",
    METADATA,
    Column("uuid", String(36), primary_key=True),
    Column("instance", ForeignKey("instance.uuid"), nullable=False),
    Column("type", String(32), nullable=False),
    Column("status", String(32), nullable=False),
    Column("source_compute", OUTSIDE_TEXT),
    Column("source_node", String(36)),
    Column("dest_compute", OUTSIDE_TEXT),
    Column("dest_node", String(36)),
    Column("dest_host", OUTSIDE_TEXT),
    Column("old_flavor_id", OUTSIDE_TEXT),
    Column("new_flavor_id", OUTSIDE_TEXT),
    Column("hidden", Boolean, nullable=False),
    Column("cross_cell_move", Boolean, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("cleared", Boolean, nullable=False, server_default=false()),
    Column("clearing", BigInteger),
    _allow_only("type", TYPES),
    _allow_only("status", STATUSES),
)
Index("ix_migration_instance", MIGRATION.c.instance)
_partial_index(
    "ix_migration_source_node",
    MIGRATION.c.source_node,
    where=NOT_ENDED,
)
_partial_index(
    "ix_migration_not_cleared",
    MIGRATION.c.source_node,
    where=NOT_CLEARED,
)
_partial_index(
    "ix_migration_dest_node",
    MIGRATION.c.dest_node,
    where=NOT_ENDED,
)

CLAIM = Table(
    "claim",
    METADATA,
    Column("id", String(36), primary_key=True),
    Column("purpose", String(16), nullable=False),
    Column("instance", ForeignKey("instance.uuid"), nullable=False),
    Column("node", ForeignKey("compute_node.uuid"), nullable=False),
    Column("half", String(16), nullable=False),
    Column("state", String(16), nullable=False),
    Column("memory_mb", BigInteger, nullable=False),
    Column("vcpus", BigInteger, nullable=False),
    Column("disk_mb", BigInteger, nullable=False),
    Column("cells", Text, nullable=False),
    Column("flavor_id", OUTSIDE_TEXT),
    Column("migration", ForeignKey("migration.uuid")),
    Column("origin", ForeignKey("migration.uuid")),
    Column("digest", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("mdevs", Text, nullable=False, server_default="[]"),
    _allow_only("purpose", PURPOSES),
    _allow_only("half", HALVES),
    _allow_only("state", CLAIM_STATES),
    *_not_negative("memory_mb", "vcpus", "disk_mb"),
)
_partial_index("ix_claim_node", CLAIM.c.node, where=OPEN)
_partial_index("ix_claim_instance", CLAIM.c.instance, where=OPEN)
# Indexes of released claims too: a move is found by its migration, and before a row is removed all
# rows that may refer to it are searched.
Index("ix_claim_origin", CLAIM.c.origin)
Index("ix_claim_migration", CLAIM.c.migration)
Index("ix_claim_of_instance", CLAIM.c.instance)

# One holder per row, so that a second holder is a version conflict and not a second row.
DEVICE = Table(
    "device",
    METADATA,
    Column("node", ForeignKey("compute_node.uuid"), primary_key=True),
    Column("address", String(32), primary_key=True),
    Column("vendor_id", String(16), nullable=False),
    Column("product_id", String(16), nullable=False),
    Column("type", String(16), nullable=False),
    Column("parent", String(32)),
    Column("numa_node", Integer),
    Column("tags", Text, nullable=False),
    Column("serves", String(16), nullable=False),
    Column("state", String(16), nullable=False),
    Column("holder", ForeignKey("claim.id")),
    Column("request", OUTSIDE_TEXT),
    Column("present", Boolean, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("one_time_use", Boolean, nullable=False, server_default=false()),
    Column("used", Boolean, nullable=False, server_default=false()),
    Column("reserved", BigInteger, nullable=False, server_default=text("0")),
    Column("reserved_at", BigInteger, nullable=False, server_default=text("0")),
    Column("reservation_due", Boolean, nullable=False, server_default=false()),
    _allow_only("type", DEVICE_TYPES),
    _allow_only("serves", SERVES),
    _allow_only("state", DEVICE_STATES),
    CheckConstraint("(holder IS NULL) = (state = 'available')", name="holder"),
)
Index("ix_device_holder", DEVICE.c.holder)

UNIT = Table(
    "unit",
    METADATA,
    Column("node", ForeignKey("compute_node.uuid"), primary_key=True),
    Column("provider", String(36), primary_key=True),
    Column("resource_class", String(255), primary_key=True),
    Column("identifier", OUTSIDE_TEXT, primary_key=True),
    Column("metadata", Text, nullable=False),
    Column("holder", ForeignKey("claim.id")),
    Column("present", Boolean, nullable=False),
    Column("version", BigInteger, nullable=False),
)
Index("ix_unit_holder", UNIT.c.holder)

# A lease is taken before there is a record of the node.
LEASE = Table(
    "lease",
    METADATA,
    Column("node", String(36), primary_key=True),
    Column("host", OUTSIDE_TEXT, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("version", BigInteger, nullable=False),
)
