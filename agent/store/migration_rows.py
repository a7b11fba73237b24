"""The rows of migrations of instances; for those of the schema see :mod:`agent.store.migration`."""

from typing import Any

from sqlalchemy import Row

from agent.model.migration import STATUSES, TYPES, Migration
from agent.store.record_schema import MIGRATION
from agent.store.record_texts import one_of
from agent.store.versioned import VersionedTable

# Columns and fields are the same.
MIGRATION_COLUMNS = tuple(column.name for column in MIGRATION.c if column.name != "version")


def _migration_row(migration: Migration) -> dict[str, Any]:
    return {name: getattr(migration, name) for name in MIGRATION_COLUMNS}


def _migration_record(row: Row[Any]) -> Migration:
    one_of(row.type, TYPES)
    one_of(row.status, STATUSES)
    return Migration(**row._mapping)


MIGRATIONS = VersionedTable(MIGRATION, _migration_row, _migration_record)
