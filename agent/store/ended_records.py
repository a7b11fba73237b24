"""Removes records of what ended long ago. Nothing goes that anything else still refers to."""

from sqlalchemy import BindParameter, Column, ColumnElement, Connection, bindparam, delete, exists, select

from agent.model.migration import ENDED
from agent.store.record_schema import CLAIM, INSTANCE, MIGRATION

BEFORE: BindParameter[float] = bindparam("before")


def _unused(key: Column[str], *references: Column[str | None]) -> list[ColumnElement[bool]]:
    return [~exists(select(one).where(one == key)) for one in references]


# In the order in which they refer to each other.
REMOVALS = (
    delete(CLAIM).where(CLAIM.c.state == "released", CLAIM.c.updated_at < BEFORE),
    delete(MIGRATION).where(
        MIGRATION.c.status.in_(ENDED), MIGRATION.c.updated_at < BEFORE, *_unused(MIGRATION.c.uuid, CLAIM.c.migration, CLAIM.c.origin)
    ),
    delete(INSTANCE).where(INSTANCE.c.deleted, INSTANCE.c.updated_at < BEFORE, *_unused(INSTANCE.c.uuid, CLAIM.c.instance, MIGRATION.c.instance)),
)


def remove(connection: Connection, before: float) -> int:
    """Remove released claims, ended migrations and deleted instances that nobody changed since ``before``. Returns how many."""
    return sum(connection.execute(one, {"before": before}).rowcount for one in REMOVALS)
