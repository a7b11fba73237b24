"""By which generation of its consumer what an evacuation left is being removed."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.add_column("migration", sa.Column("clearing", sa.BigInteger))


def downgrade() -> None:
    op.drop_column("migration", "clearing")
