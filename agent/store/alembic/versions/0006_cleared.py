"""Whether what an evacuation left at its source is gone."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

NOT_CLEARED = sa.text("type = 'evacuation' AND status = 'done' AND NOT cleared")


def upgrade() -> None:
    op.add_column(
        "migration", sa.Column("cleared", sa.Boolean, nullable=False, server_default=sa.false())
    )
    op.create_index(
        "ix_migration_not_cleared",
        "migration",
        ["source_node"],
        sqlite_where=NOT_CLEARED,
        postgresql_where=NOT_CLEARED,
    )


def downgrade() -> None:
    op.drop_index("ix_migration_not_cleared", "migration")
    op.drop_column("migration", "cleared")
