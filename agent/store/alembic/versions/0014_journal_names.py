"""What children of the agent's are called whose uuids do not follow from that."""

import sqlalchemy as sa
from alembic import op

from agent.store.metadata import OUTSIDE_TEXT

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.add_column("journal_provider", sa.Column("name", OUTSIDE_TEXT))


def downgrade() -> None:
    op.drop_column("journal_provider", "name")
