"""The versioned tables, and the conversion between their rows and records."""

from typing import Any

from sqlalchemy import Row

from agent.model.claim import CLAIM_STATES, HALVES, PURPOSES, Claim
from agent.model.compute_node import ComputeNode, Lease
from agent.model.devices import DEVICE_STATES, DEVICE_TYPES, SERVES, DeviceRecord
from agent.model.flavor import Amounts, Flavor
from agent.model.instance import TASK_STATES, VM_STATES, Instance
from agent.model.migration import STATUSES, TYPES, Migration
from agent.model.unit_record import UnitRecord
from agent.store.record_schema import CLAIM, COMPUTE_NODE, DEVICE, INSTANCE, LEASE, MIGRATION, UNIT
from agent.store.texts import (
    cells_of,
    cells_text,
    flavor_of,
    flavor_text,
    mapping_text,
    mdevs_of,
    mdevs_text,
    one_of,
    properties_of,
    whole,
)
from agent.store.versioned import VersionedTable

# Of the columns other than metadata and version, columns and fields have the same names.
UNIT_COLUMNS = tuple(column.name for column in UNIT.c if column.name not in ("metadata", "version"))


def _unit_row(unit: UnitRecord) -> dict[str, Any]:
    return {
        **{name: getattr(unit, name) for name in UNIT_COLUMNS},
        "metadata": mapping_text(unit.metadata),
    }


def _unit_record(row: Row[Any]) -> UnitRecord:
    return UnitRecord(
        **{name: row._mapping[name] for name in UNIT_COLUMNS},
        metadata=properties_of(row._mapping["metadata"]),
        version=row.version,
    )


UNITS = VersionedTable(UNIT, _unit_row, _unit_record)


# Columns and fields have the same names.
MIGRATION_COLUMNS = tuple(column.name for column in MIGRATION.c if column.name != "version")


def _migration_row(migration: Migration) -> dict[str, Any]:
    return {name: getattr(migration, name) for name in MIGRATION_COLUMNS}


def _migration_record(row: Row[Any]) -> Migration:
    one_of(row.type, TYPES)
    one_of(row.status, STATUSES)
    return Migration(**row._mapping)


MIGRATIONS = VersionedTable(MIGRATION, _migration_row, _migration_record)


def _lease_row(lease: Lease) -> dict[str, Any]:
    return {"node": lease.node, "host": lease.host, "expires_at": lease.expires_at}


def _lease_record(row: Row[Any]) -> Lease:
    return Lease(**row._mapping)


LEASES = VersionedTable(LEASE, _lease_row, _lease_record)


TRANSLATED = ("flavor", "old_flavor", "new_flavor", "image_properties", "vm_state", "task_state")
# Of the other columns, columns and fields have the same names.
INSTANCE_COLUMNS = tuple(
    column.name for column in INSTANCE.c if column.name not in (*TRANSLATED, "version")
)


def _instance_row(instance: Instance) -> dict[str, Any]:
    return {
        **{name: getattr(instance, name) for name in INSTANCE_COLUMNS},
        "flavor": flavor_text(instance.flavor),
        "old_flavor": flavor_text(instance.old_flavor) if instance.old_flavor else None,
        "new_flavor": flavor_text(instance.new_flavor) if instance.new_flavor else None,
        "image_properties": mapping_text(instance.image_properties),
        "vm_state": instance.vm_state,
        "task_state": instance.task_state,
    }


def _instance_record(row: Row[Any]) -> Instance:
    return Instance(
        **{name: row._mapping[name] for name in INSTANCE_COLUMNS},
        flavor=flavor_of(row.flavor),
        old_flavor=_optional(row.old_flavor),
        new_flavor=_optional(row.new_flavor),
        image_properties=properties_of(row.image_properties),
        vm_state=one_of(row.vm_state, VM_STATES),
        task_state=None if row.task_state is None else one_of(row.task_state, TASK_STATES),
        version=row.version,
    )


def _optional(text: str | None) -> Flavor | None:
    return None if text is None else flavor_of(text)


INSTANCES = VersionedTable(INSTANCE, _instance_row, _instance_record)


# Of the other columns, columns and fields have the same names.
DEVICE_COLUMNS = tuple(column.name for column in DEVICE.c if column.name not in ("tags", "version"))


def _device_row(device: DeviceRecord) -> dict[str, Any]:
    return {
        **{name: getattr(device, name) for name in DEVICE_COLUMNS},
        "tags": mapping_text(device.tags),
    }


def _device_record(row: Row[Any]) -> DeviceRecord:
    one_of(row.type, DEVICE_TYPES)
    one_of(row.serves, SERVES)
    one_of(row.state, DEVICE_STATES)
    return DeviceRecord(
        **{name: row._mapping[name] for name in DEVICE_COLUMNS},
        tags=properties_of(row.tags),
        version=row.version,
    )


DEVICES = VersionedTable(DEVICE, _device_row, _device_record)


# Columns and fields have the same names.
COMPUTE_NODE_COLUMNS = tuple(column.name for column in COMPUTE_NODE.c if column.name != "version")


def _compute_node_row(node: ComputeNode) -> dict[str, Any]:
    return {name: getattr(node, name) for name in COMPUTE_NODE_COLUMNS}


def _compute_node_record(row: Row[Any]) -> ComputeNode:
    return ComputeNode(**row._mapping)


NODES = VersionedTable(COMPUTE_NODE, _compute_node_row, _compute_node_record)


AMOUNTS = ("memory_mb", "vcpus", "disk_mb")
# Of the other columns, columns and fields have the same names.
CLAIM_COLUMNS = tuple(
    column.name for column in CLAIM.c if column.name not in (*AMOUNTS, "cells", "mdevs", "version")
)


def _claim_row(claim: Claim) -> dict[str, Any]:
    return {
        **{name: getattr(claim, name) for name in CLAIM_COLUMNS},
        **{name: getattr(claim.amounts, name) for name in AMOUNTS},
        "cells": cells_text(claim.cells),
        "mdevs": mdevs_text(claim.mdevs),
    }


def _claim_record(row: Row[Any]) -> Claim:
    one_of(row.purpose, PURPOSES)
    one_of(row.half, HALVES)
    one_of(row.state, CLAIM_STATES)
    amounts = Amounts(whole(row.memory_mb), whole(row.vcpus), whole(row.disk_mb))
    return Claim(
        **{name: row._mapping[name] for name in CLAIM_COLUMNS},
        amounts=amounts,
        cells=cells_of(row.cells),
        mdevs=mdevs_of(row.mdevs),
        version=row.version,
    )


CLAIMS = VersionedTable(CLAIM, _claim_row, _claim_record)
