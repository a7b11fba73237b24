"""The tables of the store: the records, and what is kept of Placement.

Every record has a ``version``, see :mod:`agent.model.node_records`. Nodes that other agents keep in
another store have no row here; therefore only claims, devices and units refer to their node.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ColumnElement,
    ForeignKeyConstraint,
    Index,
    MetaData,
    String,
    Table,
    Text,
    TextClause,
    text,
)

from agent.model.allocation import Resources
from agent.model.claim import ENDED, Claim, Migration
from agent.model.devices import DeviceRecord
from agent.model.host_units import UnitRecord
from agent.model.instance import Instance
from agent.model.inventory import Number
from agent.model.mirror import ServerCapabilities
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import ComputeNode, Lease
from agent.store.mapping import METADATA, UUID, Mapper, quote
from agent.store.record_table import RecordTable

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


def _partial_index(
    name: str, *columns: ColumnElement[Any], where: TextClause, unique: bool = False
) -> None:
    """Define an index of the rows that meet a condition."""
    Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)


_partial_index(
    "uq_compute_node_host_name",
    COMPUTE_NODE.c.host,
    COMPUTE_NODE.c.name,
    unique=True,
    where=NOT_DELETED,
)
_partial_index("ix_instance_node", INSTANCE.c.node, where=NOT_DELETED)
_partial_index("ix_migration_source_node", MIGRATION.c.source_node, where=NOT_ENDED)
_partial_index("ix_migration_not_cleared", MIGRATION.c.source_node, where=NOT_CLEARED)
_partial_index("ix_migration_dest_node", MIGRATION.c.dest_node, where=NOT_ENDED)
_partial_index("ix_claim_node", CLAIM.c.node, where=OPEN)
_partial_index("ix_claim_instance", CLAIM.c.instance, where=OPEN)
# Indexes of released claims too: a move is found by its migration, and before a row is removed all
# rows that may refer to it are searched.
Index("ix_claim_origin", CLAIM.c.origin)
Index("ix_claim_migration", CLAIM.c.migration)
Index("ix_claim_of_instance", CLAIM.c.instance)
Index("ix_migration_instance", MIGRATION.c.instance)
Index("ix_device_holder", DEVICE.c.holder)
Index("ix_unit_holder", UNIT.c.holder)

# --- identity -------------------------------------------------------------------------------------

# Keyed by host, because hosts that share a database must not find each other's identity.
IDENTITY = Table(
    "identity",
    METADATA,
    Column("host", Text, primary_key=True),
    Column("uuid", UUID, nullable=False),
)

# --- Placement ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MirrorHeader:
    """What a view has beside its providers, see :class:`agent.model.mirror.PlacementView`."""

    sharing_read_at: float | None
    sharing_aggregates: frozenset[str]
    unknown_since: Mapping[ConsumerUuid, float]
    providers: tuple[ProviderUuid, ...]
    """In the order of the tree."""


@dataclass(frozen=True, slots=True)
class MirrorProvider:
    """One provider of a view, with its consumers when they were last read."""

    uuid: ProviderUuid
    name: str
    generation: int | None
    parent_uuid: ProviderUuid | None
    inventory: Mapping[str, Mapping[str, Number]]
    traits: frozenset[str]
    aggregates: frozenset[str]
    read_at: float | None
    consumers: Mapping[ConsumerUuid, Resources] | None
    """None: they were never read."""
    consumers_at: float | None


CAPABILITIES = Mapper(ServerCapabilities)
HEADERS, PROVIDERS = Mapper(MirrorHeader), Mapper(MirrorProvider)

ENDPOINT = Table("endpoint", METADATA, *CAPABILITIES.columns(["endpoint"]))
MIRROR = Table(
    "mirror",
    METADATA,
    Column("endpoint", Text, primary_key=True),
    Column("root", UUID, primary_key=True),
    *HEADERS.columns(),
)
MIRROR_PROVIDER = Table(
    "mirror_provider",
    METADATA,
    Column("endpoint", Text, primary_key=True),
    Column("root", UUID, primary_key=True),
    *PROVIDERS.columns(["uuid"]),
    ForeignKeyConstraint(
        ["endpoint", "root"], ["mirror.endpoint", "mirror.root"], ondelete="CASCADE"
    ),
)
JOURNAL = Table(
    "journal",
    METADATA,
    Column("root", UUID, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("empty", Boolean, nullable=False),
    Column("contents", Text, nullable=False),
)

# --- the schema's number --------------------------------------------------------------------------

# A store with another number is refused, whichever is greater.
VERSION = "0016"
# Written in the header of every SQLite file of the agent ("cnag"), so that a foreign file is
# never taken for a store.
APPLICATION_ID = 0x636E6167
# In a metadata object of its own, because it has no contents of the store.
VERSIONS = Table(
    "compute_node_agent_schema",
    MetaData(),
    Column("version_num", String(32), primary_key=True),
)
