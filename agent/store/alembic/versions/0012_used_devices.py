"""Which devices have to be cleaned, and what of each card is reserved."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

COLUMNS = (
    ("one_time_use", sa.Boolean, sa.false()),
    ("used", sa.Boolean, sa.false()),
    ("reserved", sa.BigInteger, sa.text("0")),
    ("reserved_at", sa.BigInteger, sa.text("0")),
    ("reservation_due", sa.Boolean, sa.false()),
)


def upgrade() -> None:
    for name, kind, default in COLUMNS:
        op.add_column("device", sa.Column(name, kind, nullable=False, server_default=default))


def downgrade() -> None:
    for name, _, _ in reversed(COLUMNS):
        op.drop_column("device", name)
