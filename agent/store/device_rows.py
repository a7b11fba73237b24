"""The rows of devices."""

from typing import Any

from sqlalchemy import Row

from agent.model.held_device import DEVICE_STATES, DEVICE_TYPES, SERVES, DeviceRow
from agent.store.record_schema import DEVICE
from agent.store.record_texts import one_of, properties_of
from agent.store.texts import mapping_text
from agent.store.versioned import VersionedTable

# Of the others, columns and fields are the same.
NAMES = tuple(column.name for column in DEVICE.c if column.name not in ("tags", "version"))


def _row(device: DeviceRow) -> dict[str, Any]:
    return {**{name: getattr(device, name) for name in NAMES}, "tags": mapping_text(device.tags)}


def _record(row: Row[Any]) -> DeviceRow:
    one_of(row.type, DEVICE_TYPES)
    one_of(row.serves, SERVES)
    one_of(row.state, DEVICE_STATES)
    return DeviceRow(**{name: row._mapping[name] for name in NAMES}, tags=properties_of(row.tags), version=row.version)


DEVICES = VersionedTable(DEVICE, _row, _record)
