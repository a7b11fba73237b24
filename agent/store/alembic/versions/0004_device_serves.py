"""Devices that guests may not have, because they are on the same card as others that they may."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

KEPT = (
    "node, address, vendor_id, product_id, type, parent, numa_node, tags, state, holder, request, "
    "present, version"
)


def upgrade() -> None:
    _remade(f"{KEPT}, serves", f"{KEPT}, 'guests'", with_serves=True)


def downgrade() -> None:
    op.execute("DELETE FROM device WHERE serves <> 'guests'")
    _remade(KEPT, KEPT, with_serves=False)


def _remade(into: str, values: str, *, with_serves: bool) -> None:
    """Make the table anew with or without the column, because SQLite cannot give it one with a
    constraint.
    """
    op.execute("CREATE TEMPORARY TABLE kept_device AS SELECT * FROM device")
    op.drop_table("device")
    op.create_table(
        "device",
        sa.Column("node", sa.String(36), nullable=False),
        sa.Column("address", sa.String(32), nullable=False),
        sa.Column("vendor_id", sa.String(16), nullable=False),
        sa.Column("product_id", sa.String(16), nullable=False),
        sa.Column("type", sa.String(16), nullable=False),
        sa.Column("parent", sa.String(32)),
        sa.Column("numa_node", sa.Integer),
        sa.Column("tags", sa.Text, nullable=False),
        *([sa.Column("serves", sa.String(16), nullable=False)] if with_serves else []),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("holder", sa.String(36)),
        sa.Column("request", sa.Text),
        sa.Column("present", sa.Boolean, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("node", "address", name="pk_device"),
        _closed("type", ("type-PCI", "type-PF", "type-VF", "vdpa")),
        *([_closed("serves", ("guests", "host", "nobody"))] if with_serves else []),
        _closed("state", ("allocated", "available", "claimed")),
        sa.CheckConstraint(
            "(holder IS NULL) = (state = 'available')", name=op.f("ck_device_holder")
        ),
        sa.ForeignKeyConstraint(["node"], ["compute_node.uuid"], name="fk_device_node"),
        sa.ForeignKeyConstraint(["holder"], ["claim.id"], name="fk_device_holder"),
    )
    op.execute(f"INSERT INTO device ({into}) SELECT {values} FROM kept_device")  # noqa: S608 -- both are constants above # nosec B608
    op.execute("DROP TABLE kept_device")
    op.create_index("ix_device_holder", "device", ["holder"])


def _closed(column: str, words: tuple[str, ...]) -> sa.CheckConstraint:
    return sa.CheckConstraint(
        f"{column} IN ({', '.join(map(repr, words))})", name=op.f(f"ck_device_{column}")
    )
