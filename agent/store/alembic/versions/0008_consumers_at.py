"""When it was asked who holds something of a provider."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("mirror_consumers", sa.Column("asked_at", sa.Double))


def downgrade() -> None:
    op.drop_column("mirror_consumers", "asked_at")
