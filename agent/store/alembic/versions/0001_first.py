"""The node's identity, what is known of servers, the mirror and the ownership journal."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "identity",
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("uuid", sa.String(36), nullable=False),
        sa.PrimaryKeyConstraint("host", name="pk_identity"),
    )
    op.create_table(
        "endpoint",
        sa.Column("endpoint", sa.Text, nullable=False),
        sa.Column("max_version", sa.String(16), nullable=False),
        sa.Column("can_reshape", sa.Boolean, nullable=False),
        sa.Column("traits", sa.Text, nullable=False),
        sa.Column("classes", sa.Text, nullable=False),
        sa.Column("unknown_traits", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("endpoint", name="pk_endpoint"),
    )
    _create_mirror()
    _create_journal()


def _create_mirror() -> None:
    op.create_table(
        "mirror",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("endpoint", sa.Text, nullable=False),
        sa.Column("root", sa.String(36), nullable=False),
        sa.Column("sharing_read_at", sa.Double),
        sa.Column("sharing_aggregates", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_mirror"),
        sa.UniqueConstraint("endpoint", "root", name="uq_mirror_endpoint"),
    )
    op.create_table(
        "mirror_provider",
        sa.Column("mirror", sa.Integer, nullable=False),
        sa.Column("uuid", sa.String(36), nullable=False),
        sa.Column("ordinal", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("parent", sa.String(36)),
        sa.Column("generation", sa.BigInteger),
        sa.Column("inventory", sa.Text, nullable=False),
        sa.Column("traits", sa.Text, nullable=False),
        sa.Column("aggregates", sa.Text, nullable=False),
        sa.Column("read_at", sa.Double),
        sa.PrimaryKeyConstraint("mirror", "uuid", name="pk_mirror_provider"),
        sa.ForeignKeyConstraint(
            ["mirror"], ["mirror.id"], name="fk_mirror_provider_mirror", ondelete="CASCADE"
        ),
    )


def _create_journal() -> None:
    op.create_table(
        "journal",
        sa.Column("root", sa.String(36), nullable=False),
        sa.Column("adopted", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("root", name="pk_journal"),
    )
    op.create_table(
        "journal_provider",
        sa.Column("root", sa.String(36), nullable=False),
        sa.Column("provider", sa.String(36), nullable=False),
        sa.Column("classes", sa.Text),
        sa.Column("traits", sa.Text),
        sa.Column("aggregates", sa.Text),
        sa.Column("held", sa.Text),
        sa.PrimaryKeyConstraint("root", "provider", name="pk_journal_provider"),
        sa.ForeignKeyConstraint(
            ["root"], ["journal.root"], name="fk_journal_provider_journal", ondelete="CASCADE"
        ),
    )


def downgrade() -> None:
    for table in (
        "journal_provider",
        "journal",
        "mirror_provider",
        "mirror",
        "endpoint",
        "identity",
    ):
        op.drop_table(table)
