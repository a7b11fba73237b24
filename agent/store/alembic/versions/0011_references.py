"""Which claims refer to a migration or an instance."""

from alembic import op

revision = "0011"
down_revision = "0010"

INDEXES = {
    "ix_claim_origin": "origin",
    "ix_claim_migration": "migration",
    "ix_claim_of_instance": "instance",
}


def upgrade() -> None:
    for name, column in INDEXES.items():
        op.create_index(name, "claim", [column])


def downgrade() -> None:
    for name in INDEXES:
        op.drop_index(name, "claim")
