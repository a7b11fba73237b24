"""What the operator's files asked for, apart from what the node itself has."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

COLUMNS = ("configured_classes", "configured_traits")


def upgrade() -> None:
    for name in COLUMNS:
        op.add_column("journal_provider", sa.Column(name, sa.Text))


def downgrade() -> None:
    for name in COLUMNS:
        op.drop_column("journal_provider", name)
