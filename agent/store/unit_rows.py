"""The rows of assigned units."""

from typing import Any

from sqlalchemy import Row

from agent.model.assigned_unit import UnitRow
from agent.store.record_schema import UNIT
from agent.store.record_texts import properties_of
from agent.store.texts import mapping_text
from agent.store.versioned import VersionedTable

# Of the others, columns and fields are the same.
NAMES = tuple(column.name for column in UNIT.c if column.name not in ("metadata", "version"))


def _row(unit: UnitRow) -> dict[str, Any]:
    return {**{name: getattr(unit, name) for name in NAMES}, "metadata": mapping_text(unit.metadata)}


def _record(row: Row[Any]) -> UnitRow:
    return UnitRow(**{name: row._mapping[name] for name in NAMES}, metadata=properties_of(row._mapping["metadata"]), version=row.version)


UNITS = VersionedTable(UNIT, _row, _record)
