"""What each child is to its node, instead of the names of some children."""

from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    # A name is a role that a pass makes exact.
    op.execute("ALTER TABLE journal_provider RENAME COLUMN name TO role")


def downgrade() -> None:
    op.execute("ALTER TABLE journal_provider RENAME COLUMN role TO name")
