"""The rows of assigned units."""

from typing import Any

from sqlalchemy import Row

from agent.model.unit_record import UnitRecord
from agent.store.record_schema import UNIT
from agent.store.record_texts import properties_of
from agent.store.texts import mapping_text
from agent.store.versioned import VersionedTable

# Of the others, columns and fields are the same.
UNIT_COLUMNS = tuple(column.name for column in UNIT.c if column.name not in ("metadata", "version"))


def _unit_row(unit: UnitRecord) -> dict[str, Any]:
    return {**{name: getattr(unit, name) for name in UNIT_COLUMNS}, "metadata": mapping_text(unit.metadata)}


def _unit_record(row: Row[Any]) -> UnitRecord:
    return UnitRecord(**{name: row._mapping[name] for name in UNIT_COLUMNS}, metadata=properties_of(row._mapping["metadata"]), version=row.version)


UNITS = VersionedTable(UNIT, _unit_row, _unit_record)
