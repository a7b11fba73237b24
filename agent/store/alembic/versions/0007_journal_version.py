"""Versions of journals, so that an older one is never written over a newer one."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column(
        "journal", sa.Column("version", sa.BigInteger, nullable=False, server_default="1")
    )


def downgrade() -> None:
    op.drop_column("journal", "version")
