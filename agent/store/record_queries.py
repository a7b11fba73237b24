"""The queries for records, built once because building a statement costs more than executing it."""

from typing import Any

from sqlalchemy import BindParameter, Column, Select, and_, bindparam, exists, or_, select, text

from agent.store.tables import (
    CLAIM,
    CLAIMS,
    COMPUTE_NODE,
    DEVICE,
    DEVICES,
    INSTANCE,
    INSTANCES,
    LEASE,
    LEASES,
    MIGRATION,
    MIGRATIONS,
    NODES,
    NOT_CLEARED,
    NOT_DELETED,
    NOT_ENDED,
    OPEN,
    UNIT,
    UNITS,
)

KEY: BindParameter[str] = bindparam("key")
NODE: BindParameter[str] = bindparam("node")
HOST: BindParameter[str] = bindparam("host")
NAME: BindParameter[str] = bindparam("name")
SOME: BindParameter[list[str]] = bindparam("some", expanding=True)

SERVER_CLOCK = text("SELECT extract(epoch FROM clock_timestamp())")
"""Seconds since the epoch, on a PostgreSQL."""

# --- compute nodes --------------------------------------------------------------------------------

# A deleted node may have had the same name.
NODE_BY_NAME = (
    NODES.all.where(COMPUTE_NODE.c.host == HOST, COMPUTE_NODE.c.name == NAME)
    .order_by(COMPUTE_NODE.c.deleted, COMPUTE_NODE.c.uuid)
    .limit(1)
)
NODE_VERSIONS = (
    select(COMPUTE_NODE.c.uuid, COMPUTE_NODE.c.version)
    .where(COMPUTE_NODE.c.uuid.in_(SOME))
    .order_by(COMPUTE_NODE.c.uuid)
)
# In the order of their uuids, so that two transactions that lock the same nodes do not deadlock.
NODES_LOCKED = NODE_VERSIONS.with_for_update()
QUIET_VERSIONS = select(COMPUTE_NODE.c.uuid, COMPUTE_NODE.c.version).where(
    COMPUTE_NODE.c.uuid.in_(SOME),
    ~exists(
        select(MIGRATION.c.uuid).where(
            NOT_ENDED,
            or_(
                MIGRATION.c.source_node == COMPUTE_NODE.c.uuid,
                MIGRATION.c.dest_node == COMPUTE_NODE.c.uuid,
            ),
        )
    ),
)
NODES_OF_HOST = NODES.all.where(COMPUTE_NODE.c.host == HOST, NOT_DELETED).order_by(
    COMPUTE_NODE.c.uuid
)
ALL_NODES = NODES.all.where(NOT_DELETED).order_by(COMPUTE_NODE.c.uuid)
NODE_UUIDS_OF_HOST = select(COMPUTE_NODE.c.uuid).where(COMPUTE_NODE.c.host == HOST, NOT_DELETED)
NODES_WITH_INSTANCES = (
    select(INSTANCE.c.node)
    .where(INSTANCE.c.host == HOST, INSTANCE.c.node.is_not(None), NOT_DELETED)
    .distinct()
)
LEASES_OF_HOST = LEASES.all.where(LEASE.c.host == HOST)

HAS_RECORDS = select(or_(select(INSTANCE.c.uuid).exists(), select(CLAIM.c.id).exists()))

# --- all of one node ------------------------------------------------------------------------------


def _claimed_here(column: Column[Any]) -> Select[Any]:
    return select(column).where(CLAIM.c.node == NODE, OPEN)


CLAIMS_HERE = CLAIMS.all.where(CLAIM.c.node == NODE, OPEN).order_by(CLAIM.c.created_at, CLAIM.c.id)
INSTANCES_HERE = INSTANCES.all.where(
    or_(
        and_(INSTANCE.c.node == NODE, NOT_DELETED),
        INSTANCE.c.uuid.in_(_claimed_here(CLAIM.c.instance)),
    )
).order_by(INSTANCE.c.created_at, INSTANCE.c.uuid)
MIGRATIONS_HERE = MIGRATIONS.all.where(
    or_(
        and_(MIGRATION.c.source_node == NODE, NOT_ENDED),
        and_(MIGRATION.c.dest_node == NODE, NOT_ENDED),
        MIGRATION.c.uuid.in_(_claimed_here(CLAIM.c.migration)),
    )
).order_by(MIGRATION.c.created_at, MIGRATION.c.uuid)
DEVICES_HERE = DEVICES.all.where(DEVICE.c.node == NODE).order_by(DEVICE.c.address)
UNITS_HERE = UNITS.all.where(UNIT.c.node == NODE).order_by(
    UNIT.c.provider, UNIT.c.resource_class, UNIT.c.identifier
)

# --- one by one, and what belongs to it -----------------------------------------------------------

SOME_INSTANCES = INSTANCES.all.where(INSTANCE.c.uuid.in_(SOME))
SOME_MIGRATIONS = MIGRATIONS.all.where(
    or_(MIGRATION.c.uuid.in_(SOME), MIGRATION.c.instance.in_(SOME))
)
EVACUATIONS_FROM = MIGRATIONS.all.where(
    MIGRATION.c.source_compute == HOST, MIGRATION.c.source_node == NODE, NOT_CLEARED
).order_by(MIGRATION.c.uuid)
INSTANCES_OF_MIGRATIONS = select(MIGRATION.c.instance).where(MIGRATION.c.uuid.in_(SOME))
# A migration that was claimed again has several.
CLAIM_OF_MIGRATION = (
    CLAIMS.all.where(CLAIM.c.origin == KEY, CLAIM.c.purpose == "move")
    .order_by(CLAIM.c.created_at.desc(), CLAIM.c.id)
    .limit(1)
)
CLAIMS_OF_INSTANCE = CLAIMS.all.where(CLAIM.c.instance == KEY, OPEN).order_by(
    CLAIM.c.created_at, CLAIM.c.id
)
DEVICES_HELD = DEVICES.all.where(DEVICE.c.holder.in_(SOME)).order_by(
    DEVICE.c.node, DEVICE.c.address
)
UNITS_HELD = UNITS.all.where(UNIT.c.holder.in_(SOME)).order_by(
    UNIT.c.node, UNIT.c.provider, UNIT.c.resource_class, UNIT.c.identifier
)
