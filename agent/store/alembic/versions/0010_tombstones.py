"""What the agent took back, to know it again when a restored database brings it back."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("journal", sa.Column("tombstones", sa.Text))


def downgrade() -> None:
    op.drop_column("journal", "tombstones")
