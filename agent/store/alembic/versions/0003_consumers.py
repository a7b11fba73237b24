"""Who holds what of a node's providers, and since when nobody knows whom."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "mirror_consumers",
        sa.Column("mirror", sa.Integer, nullable=False),
        sa.Column("provider", sa.String(36), nullable=False),
        sa.Column("consumers", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("mirror", "provider", name="pk_mirror_consumers"),
        sa.ForeignKeyConstraint(
            ["mirror"], ["mirror.id"], name="fk_mirror_consumers_mirror", ondelete="CASCADE"
        ),
    )
    op.create_table(
        "mirror_unknown",
        sa.Column("mirror", sa.Integer, nullable=False),
        sa.Column("consumer", sa.String(36), nullable=False),
        sa.Column("since", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("mirror", "consumer", name="pk_mirror_unknown"),
        sa.ForeignKeyConstraint(
            ["mirror"], ["mirror.id"], name="fk_mirror_unknown_mirror", ondelete="CASCADE"
        ),
    )


def downgrade() -> None:
    op.drop_table("mirror_unknown")
    op.drop_table("mirror_consumers")
