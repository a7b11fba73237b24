"""The records: compute nodes, instances, migrations, claims, devices, assigned units, leases."""

from collections.abc import Iterable

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

TABLES = ("compute_node", "instance", "migration", "claim", "device", "unit", "lease")
# The words of this version, whatever the code says by now.
INSTANCE_VM_STATE = (
    "active",
    "building",
    "deleted",
    "error",
    "paused",
    "rescued",
    "resized",
    "shelved",
    "shelved_offloaded",
    "soft-delete",
    "stopped",
    "suspended",
)
INSTANCE_TASK_STATE = (
    "block_device_mapping",
    "deleting",
    "image_backup",
    "image_pending_upload",
    "image_snapshot",
    "image_snapshot_pending",
    "image_uploading",
    "migrating",
    "networking",
    "pausing",
    "powering-off",
    "powering-on",
    "reboot_pending",
    "reboot_pending_hard",
    "reboot_started",
    "reboot_started_hard",
    "rebooting",
    "rebooting_hard",
    "rebuild_block_device_mapping",
    "rebuild_spawning",
    "rebuilding",
    "rescuing",
    "resize_confirming",
    "resize_finish",
    "resize_migrated",
    "resize_migrating",
    "resize_prep",
    "resize_reverting",
    "restoring",
    "resuming",
    "scheduling",
    "shelving",
    "shelving_image_pending_upload",
    "shelving_image_uploading",
    "shelving_offloading",
    "soft-deleting",
    "spawning",
    "suspending",
    "unpausing",
    "unrescuing",
    "unshelving",
    "updating_password",
)
MIGRATION_STATUS = (
    "accepted",
    "cancelled",
    "completed",
    "confirmed",
    "confirming",
    "done",
    "error",
    "failed",
    "finished",
    "migrating",
    "post-migrating",
    "pre-migrating",
    "preparing",
    "queued",
    "reverted",
    "reverting",
    "running",
)
NOT_DELETED = "NOT deleted"
OPEN = "state <> 'released'"
NOT_ENDED = "status NOT IN ('cancelled', 'completed', 'confirmed', 'done', 'failed', 'reverted')"


def upgrade() -> None:
    _create_compute_node()
    _create_instance()
    _create_migration()
    _create_claim()
    _create_device()
    _create_unit()
    _create_lease()


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)


def _check(name: str, condition: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(condition, name=op.f(name))


def _closed(name: str, column: str, words: Iterable[str]) -> sa.CheckConstraint:
    return _check(name, f"{column} IN ({', '.join(map(repr, words))})")


def _times() -> list[sa.Column[float]]:
    return [
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
    ]


def _index(
    name: str, table: str, columns: list[str], condition: str, *, unique: bool = False
) -> None:
    op.create_index(
        name,
        table,
        columns,
        unique=unique,
        sqlite_where=sa.text(condition),
        postgresql_where=sa.text(condition),
    )


def _create_compute_node() -> None:
    op.create_table(
        "compute_node",
        sa.Column("uuid", sa.String(36), nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("host_ip", sa.Text),
        sa.Column("vcpus", sa.BigInteger),
        sa.Column("memory_mb", sa.BigInteger),
        sa.Column("local_gb", sa.BigInteger),
        sa.Column("hypervisor_type", sa.Text, nullable=False),
        sa.Column("hypervisor_version", sa.BigInteger, nullable=False),
        sa.Column("cpu_info", sa.Text, nullable=False),
        sa.Column("cpu_allocation_ratio", sa.Double, nullable=False),
        sa.Column("ram_allocation_ratio", sa.Double, nullable=False),
        sa.Column("disk_allocation_ratio", sa.Double, nullable=False),
        sa.Column("failed_builds", sa.Integer, nullable=False),
        sa.Column("dirty", sa.Boolean, nullable=False),
        sa.Column("deleted", sa.Boolean, nullable=False),
        *_times(),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("uuid", name="pk_compute_node"),
        _check("ck_compute_node_vcpus", "vcpus >= 0"),
        _check("ck_compute_node_memory_mb", "memory_mb >= 0"),
        _check("ck_compute_node_local_gb", "local_gb >= 0"),
        _check("ck_compute_node_failed_builds", "failed_builds >= 0"),
    )
    _index("uq_compute_node_host_name", "compute_node", ["host", "name"], NOT_DELETED, unique=True)


def _create_instance() -> None:
    op.create_table(
        "instance",
        sa.Column("uuid", sa.String(36), nullable=False),
        sa.Column("project_id", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("flavor", sa.Text, nullable=False),
        sa.Column("os_type", sa.Text),
        sa.Column("host", sa.Text),
        sa.Column("node", sa.String(36)),
        sa.Column("launched_on", sa.Text),
        sa.Column("vm_state", sa.String(32), nullable=False),
        sa.Column("task_state", sa.String(32)),
        sa.Column("old_flavor", sa.Text),
        sa.Column("new_flavor", sa.Text),
        sa.Column("image_properties", sa.Text, nullable=False),
        sa.Column("volume_backed", sa.Boolean, nullable=False),
        sa.Column("hidden", sa.Boolean, nullable=False),
        sa.Column("deleted", sa.Boolean, nullable=False),
        *_times(),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("uuid", name="pk_instance"),
        _closed("ck_instance_vm_state", "vm_state", INSTANCE_VM_STATE),
        _closed("ck_instance_task_state", "task_state", INSTANCE_TASK_STATE),
    )
    _index("ix_instance_node", "instance", ["node"], NOT_DELETED)


def _create_migration() -> None:
    op.create_table(
        "migration",
        sa.Column("uuid", sa.String(36), nullable=False),
        sa.Column("instance", sa.String(36), nullable=False),
        sa.Column("type", sa.String(32), nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("source_compute", sa.Text),
        sa.Column("source_node", sa.String(36)),
        sa.Column("dest_compute", sa.Text),
        sa.Column("dest_node", sa.String(36)),
        sa.Column("dest_host", sa.Text),
        sa.Column("old_flavor_id", sa.Text),
        sa.Column("new_flavor_id", sa.Text),
        sa.Column("hidden", sa.Boolean, nullable=False),
        sa.Column("cross_cell_move", sa.Boolean, nullable=False),
        *_times(),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("uuid", name="pk_migration"),
        _closed(
            "ck_migration_type", "type", ("evacuation", "live-migration", "migration", "resize")
        ),
        _closed("ck_migration_status", "status", MIGRATION_STATUS),
        sa.ForeignKeyConstraint(["instance"], ["instance.uuid"], name="fk_migration_instance"),
    )
    _index("ix_migration_dest_node", "migration", ["dest_node"], NOT_ENDED)
    op.create_index("ix_migration_instance", "migration", ["instance"])
    _index("ix_migration_source_node", "migration", ["source_node"], NOT_ENDED)


def _create_claim() -> None:
    op.create_table(
        "claim",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("purpose", sa.String(16), nullable=False),
        sa.Column("instance", sa.String(36), nullable=False),
        sa.Column("node", sa.String(36), nullable=False),
        sa.Column("half", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("memory_mb", sa.BigInteger, nullable=False),
        sa.Column("vcpus", sa.BigInteger, nullable=False),
        sa.Column("disk_mb", sa.BigInteger, nullable=False),
        sa.Column("cells", sa.Text, nullable=False),
        sa.Column("flavor_id", sa.Text),
        sa.Column("migration", sa.String(36)),
        sa.Column("origin", sa.String(36)),
        sa.Column("digest", sa.Text, nullable=False),
        *_times(),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_claim"),
        _closed("ck_claim_purpose", "purpose", ("devices", "instance", "move")),
        _closed("ck_claim_half", "half", ("new", "old", "only")),
        _closed("ck_claim_state", "state", ("consumed", "held", "released")),
        _check("ck_claim_memory_mb", "memory_mb >= 0"),
        _check("ck_claim_vcpus", "vcpus >= 0"),
        _check("ck_claim_disk_mb", "disk_mb >= 0"),
        sa.ForeignKeyConstraint(["instance"], ["instance.uuid"], name="fk_claim_instance"),
        sa.ForeignKeyConstraint(["node"], ["compute_node.uuid"], name="fk_claim_node"),
        sa.ForeignKeyConstraint(["migration"], ["migration.uuid"], name="fk_claim_migration"),
        sa.ForeignKeyConstraint(["origin"], ["migration.uuid"], name="fk_claim_origin"),
    )
    _index("ix_claim_instance", "claim", ["instance"], OPEN)
    _index("ix_claim_node", "claim", ["node"], OPEN)


def _create_device() -> None:
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
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("holder", sa.String(36)),
        sa.Column("request", sa.Text),
        sa.Column("present", sa.Boolean, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("node", "address", name="pk_device"),
        _closed("ck_device_type", "type", ("type-PCI", "type-PF", "type-VF", "vdpa")),
        _closed("ck_device_state", "state", ("allocated", "available", "claimed")),
        _check("ck_device_holder", "(holder IS NULL) = (state = 'available')"),
        sa.ForeignKeyConstraint(["node"], ["compute_node.uuid"], name="fk_device_node"),
        sa.ForeignKeyConstraint(["holder"], ["claim.id"], name="fk_device_holder"),
    )
    op.create_index("ix_device_holder", "device", ["holder"])


def _create_unit() -> None:
    op.create_table(
        "unit",
        sa.Column("node", sa.String(36), nullable=False),
        sa.Column("provider", sa.String(36), nullable=False),
        sa.Column("resource_class", sa.String(255), nullable=False),
        sa.Column("identifier", sa.Text, nullable=False),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("holder", sa.String(36)),
        sa.Column("present", sa.Boolean, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("node", "provider", "resource_class", "identifier", name="pk_unit"),
        sa.ForeignKeyConstraint(["node"], ["compute_node.uuid"], name="fk_unit_node"),
        sa.ForeignKeyConstraint(["holder"], ["claim.id"], name="fk_unit_holder"),
    )
    op.create_index("ix_unit_holder", "unit", ["holder"])


def _create_lease() -> None:
    op.create_table(
        "lease",
        sa.Column("node", sa.String(36), nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("node", name="pk_lease"),
    )
