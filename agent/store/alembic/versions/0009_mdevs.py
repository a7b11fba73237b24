"""What each claim has of mediated devices."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("claim", sa.Column("mdevs", sa.Text, nullable=False, server_default="[]"))


def downgrade() -> None:
    op.drop_column("claim", "mdevs")
