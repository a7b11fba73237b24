"""The tables of the store. The migrations in this package create the same; a test compares both.

Lists and mappings are JSON text with sorted names, so that equal contents have equal texts.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from agent.store import record_schema  # noqa: F401
from agent.store.metadata import METADATA, OUTSIDE_TEXT

# The latest migration. Migrations are numbered, so that a newer schema can be told from a foreign
# one.
VERSION = "0015"
# Not alembic's default, because a shared database may hold the version tables of other projects.
VERSION_TABLE = "compute_node_agent_schema"
# Written in the header of every SQLite file of the agent ("cnag"), so that a foreign file is
# never taken for a store.
APPLICATION_ID = 0x636E6167

# alembic's own table, in a metadata object of its own so that it does not count as one of the
# store's.
VERSIONS = Table(
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)

# Keyed by host, because hosts that share a database must not find each other's identity.
IDENTITY = Table(
    "identity",
    METADATA,
    Column("host", Text, primary_key=True),
    Column("uuid", String(36), nullable=False),
)

ENDPOINT = Table(
    "endpoint",
    METADATA,
    Column("endpoint", Text, primary_key=True),
    Column("max_version", String(16), nullable=False),
    Column("can_reshape", Boolean, nullable=False),
    Column("traits", Text, nullable=False),
    Column("classes", Text, nullable=False),
    Column("unknown_traits", Text, nullable=False),
)

MIRROR = Table(
    "mirror",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("endpoint", Text, nullable=False),
    Column("root", String(36), nullable=False),
    Column("sharing_read_at", Double),
    Column("sharing_aggregates", Text, nullable=False),
    UniqueConstraint("endpoint", "root"),
)

# ``ordinal`` orders the children of one parent, and the roots; it has no other meaning.
MIRROR_PROVIDER = Table(
    "mirror_provider",
    METADATA,
    Column("mirror", ForeignKey("mirror.id", ondelete="CASCADE"), primary_key=True),
    Column("uuid", String(36), primary_key=True),
    Column("ordinal", Integer, nullable=False),
    Column("name", OUTSIDE_TEXT, nullable=False),
    Column("parent", String(36)),
    Column("generation", BigInteger),
    Column("inventory", Text, nullable=False),
    Column("traits", Text, nullable=False),
    Column("aggregates", Text, nullable=False),
    Column("read_at", Double),
)

# The consumers of a provider when they were last read; no row if they never were.
MIRROR_CONSUMERS = Table(
    "mirror_consumers",
    METADATA,
    Column("mirror", ForeignKey("mirror.id", ondelete="CASCADE"), primary_key=True),
    Column("provider", String(36), primary_key=True),
    Column("consumers", Text, nullable=False),
    Column("asked_at", Double),
)

# The time at which a consumer was first seen without a record.
MIRROR_UNKNOWN = Table(
    "mirror_unknown",
    METADATA,
    Column("mirror", ForeignKey("mirror.id", ondelete="CASCADE"), primary_key=True),
    Column("consumer", String(36), primary_key=True),
    Column("since", Double, nullable=False),
)

# ``tombstones`` is a list of provider, kind, name and time; null if there are none.
JOURNAL = Table(
    "journal",
    METADATA,
    Column("root", String(36), primary_key=True),
    Column("adopted", Boolean, nullable=False),
    Column("version", BigInteger, nullable=False, server_default="1"),
    Column("tombstones", Text),
)

# ``classes``, ``traits`` and ``aggregates`` are null for a provider that is not the agent's;
# ``held`` if nothing is held; ``configured_classes`` and ``configured_traits`` if provider config
# files add nothing.
JOURNAL_PROVIDER = Table(
    "journal_provider",
    METADATA,
    Column(
        "root",
        ForeignKey("journal.root", name="fk_journal_provider_journal", ondelete="CASCADE"),
        primary_key=True,
    ),
    Column("provider", String(36), primary_key=True),
    Column("classes", Text),
    Column("traits", Text),
    Column("aggregates", Text),
    Column("held", Text),
    Column("configured_classes", Text),
    Column("configured_traits", Text),
    Column("role", OUTSIDE_TEXT),
)
