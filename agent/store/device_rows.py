"""The rows of devices."""

from typing import Any

from sqlalchemy import Row

from agent.model.device_record import DEVICE_STATES, DEVICE_TYPES, SERVES, DeviceRecord
from agent.store.record_schema import DEVICE
from agent.store.record_texts import one_of, properties_of
from agent.store.texts import mapping_text
from agent.store.versioned import VersionedTable

# Of the others, columns and fields are the same.
DEVICE_COLUMNS = tuple(column.name for column in DEVICE.c if column.name not in ("tags", "version"))


def _device_row(device: DeviceRecord) -> dict[str, Any]:
    return {**{name: getattr(device, name) for name in DEVICE_COLUMNS}, "tags": mapping_text(device.tags)}


def _device_record(row: Row[Any]) -> DeviceRecord:
    one_of(row.type, DEVICE_TYPES)
    one_of(row.serves, SERVES)
    one_of(row.state, DEVICE_STATES)
    return DeviceRecord(**{name: row._mapping[name] for name in DEVICE_COLUMNS}, tags=properties_of(row.tags), version=row.version)


DEVICES = VersionedTable(DEVICE, _device_row, _device_record)
