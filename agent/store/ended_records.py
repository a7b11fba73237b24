"""Removal of records that ended long ago, and of everything stored about deleted nodes. Rows that
others refer to stay.
"""

from sqlalchemy import (
    BindParameter,
    Column,
    ColumnElement,
    Connection,
    and_,
    bindparam,
    delete,
    exists,
    or_,
    select,
)

from agent.model.migration import ENDED
from agent.store.record_schema import (
    CLAIM,
    COMPUTE_NODE,
    DEVICE,
    INSTANCE,
    LEASE,
    MIGRATION,
    NOT_ENDED,
    UNIT,
)
from agent.store.schema import JOURNAL, JOURNAL_PROVIDER, MIRROR

# A migration in error does not go on; as long as the location of its guest matters, an open claim
# refers to it.
OVER = [*sorted(ENDED), "error"]
BEFORE: BindParameter[float] = bindparam("before")


def _unused(key: Column[str], *references: Column[str | None]) -> list[ColumnElement[bool]]:
    return [~exists(select(reference).where(reference == key)) for reference in references]


# The instance is on a node of another store, where it may be deleted without notice to this one.
GONE_ELSEWHERE = and_(
    INSTANCE.c.node.is_not(None), INSTANCE.c.node.not_in(select(COMPUTE_NODE.c.uuid))
)
# A node with journal entries stays: something of the agent's is in use in Placement, and has to be
# recognized as the agent's once it is free.
ENDED_NODES = select(COMPUTE_NODE.c.uuid).where(
    COMPUTE_NODE.c.deleted,
    COMPUTE_NODE.c.updated_at < BEFORE,
    *_unused(COMPUTE_NODE.c.uuid, CLAIM.c.node, INSTANCE.c.node, JOURNAL_PROVIDER.c.root),
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
# An instance whose build failed, or that is in error, has no host any more; a deleted one may lack
# the mark.
CAME_TO_NOTHING = and_(
    INSTANCE.c.host.is_(None),
    INSTANCE.c.node.is_(None),
    INSTANCE.c.vm_state.in_(["building", "error", "deleted"]),
)
# In the order of their references.
REMOVALS = (
    # A running move is continued by the id of its claim.
    delete(CLAIM).where(
        CLAIM.c.state == "released",
        CLAIM.c.updated_at < BEFORE,
        ~exists(
            select(MIGRATION.c.uuid).where(
                MIGRATION.c.uuid == CLAIM.c.origin, MIGRATION.c.status.not_in(OVER)
            )
        ),
    ),
    delete(MIGRATION).where(
        MIGRATION.c.status.in_(OVER),
        MIGRATION.c.updated_at < BEFORE,
        *_unused(MIGRATION.c.uuid, CLAIM.c.migration, CLAIM.c.origin),
    ),
    delete(INSTANCE).where(
        or_(INSTANCE.c.deleted, GONE_ELSEWHERE, CAME_TO_NOTHING),
        INSTANCE.c.updated_at < BEFORE,
        *_unused(INSTANCE.c.uuid, CLAIM.c.instance, MIGRATION.c.instance),
    ),
    *(
        delete(key.table).where(key.in_(ENDED_NODES))
        for key in (DEVICE.c.node, UNIT.c.node, MIRROR.c.root, JOURNAL.c.root, LEASE.c.node)
    ),
    delete(COMPUTE_NODE).where(COMPUTE_NODE.c.uuid.in_(ENDED_NODES)),
)


def remove(connection: Connection, before: float) -> int:
    """Remove released claims, migrations that ended or failed, instances that are deleted or were
    never built, and deleted nodes, unless they were changed after ``before`` (seconds since the
    epoch). Return the number of rows.
    """
    return sum(connection.execute(removal, {"before": before}).rowcount for removal in REMOVALS)
