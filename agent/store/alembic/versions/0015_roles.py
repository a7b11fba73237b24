"""What each child is to its node, instead of the names of some children."""

from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.execute("ALTER TABLE journal_provider RENAME COLUMN name TO role")
    # The next pass reads the roles from the tree.
    op.execute("UPDATE journal_provider SET role = NULL")


def downgrade() -> None:
    op.execute("ALTER TABLE journal_provider RENAME COLUMN role TO name")
