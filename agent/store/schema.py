"""The tables of the store. What is here, the migrations beside it make; a test holds the two
together.

Lists and mappings are JSON text with sorted names, so that equal contents are equal texts.
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

# The newest migration. Migrations are numbered, so that "newer" can be told from "not ours".
VERSION = "0014"
# Not alembic's own default, because a shared database may hold other projects' version table.
VERSION_TABLE = "compute_node_agent_schema"
# In the header of every SQLite file of ours ("cnag"), so that nobody else's file is ever taken for
# one.
APPLICATION_ID = 0x636E6167

# alembic's, and not ours to change: beside the other tables, so that it is not taken for one of
# them.
VERSIONS = Table(
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)

# Keyed by host, because hosts that share a database must not find each other's.
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

# ``ordinal`` grows along the children of one parent and along the roots; it says nothing else.
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

# Who held what of a provider when that was last asked; no row for one of which it was not.
MIRROR_CONSUMERS = Table(
    "mirror_consumers",
    METADATA,
    Column("mirror", ForeignKey("mirror.id", ondelete="CASCADE"), primary_key=True),
    Column("provider", String(36), primary_key=True),
    Column("consumers", Text, nullable=False),
    Column("asked_at", Double),
)

# Since when no record knows a consumer.
MIRROR_UNKNOWN = Table(
    "mirror_unknown",
    METADATA,
    Column("mirror", ForeignKey("mirror.id", ondelete="CASCADE"), primary_key=True),
    Column("consumer", String(36), primary_key=True),
    Column("since", Double, nullable=False),
)

# ``tombstones`` is a list of provider, kind, name and time; null for none.
JOURNAL = Table(
    "journal",
    METADATA,
    Column("root", String(36), primary_key=True),
    Column("adopted", Boolean, nullable=False),
    Column("version", BigInteger, nullable=False, server_default="1"),
    Column("tombstones", Text),
)

# ``classes``, ``traits`` and ``aggregates`` are null for a provider that is not the agent's;
# ``held`` for one not held; ``configured_classes`` and ``configured_traits`` for one of which the
# operator's files say nothing.
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
    Column("name", OUTSIDE_TEXT),
)
