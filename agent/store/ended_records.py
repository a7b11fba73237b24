"""Removes records of what ended long ago, and all that is remembered of nodes that are no more.
Nothing goes that anything else still refers to.
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

# One in error goes on no more; while it matters where that left its guest, a claim is open that
# refers to it.
OVER = [*sorted(ENDED), "error"]
BEFORE: BindParameter[float] = bindparam("before")


def _unused(key: Column[str], *references: Column[str | None]) -> list[ColumnElement[bool]]:
    return [~exists(select(one).where(one == key)) for one in references]


# On a host that has a store of its own, where it may be deleted without a word to this one.
GONE_ELSEWHERE = and_(
    INSTANCE.c.node.is_not(None), INSTANCE.c.node.not_in(select(COMPUTE_NODE.c.uuid))
)
# Not while something of it is ours in Placement, because somebody has it: that has to be known to
# be ours when it is free.
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
# A build that failed, or a guest that is in error, has no host any more; one that is deleted may
# not be marked so.
CAME_TO_NOTHING = and_(
    INSTANCE.c.host.is_(None),
    INSTANCE.c.node.is_(None),
    INSTANCE.c.vm_state.in_(["building", "error", "deleted"]),
)
# In the order in which they refer to each other.
REMOVALS = (
    # The steps of a move that goes on find it by its claim.
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
    """Remove released claims, migrations that ended or failed, instances that are deleted or came
    to nothing, and deleted nodes, unless somebody changed them since ``before``. Returns how many
    rows.
    """
    return sum(connection.execute(one, {"before": before}).rowcount for one in REMOVALS)
