"""The versioned tables, the conversion between their rows and records, column by column, and
inserts of rows that another process may insert at the same time.
"""

from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Insert, Row, Table

from agent.model.claim import CLAIM_STATES, HALVES, PURPOSES, STATUSES, TYPES, Claim, Migration
from agent.model.devices import DEVICE_STATES, DEVICE_TYPES, SERVES, DeviceRecord
from agent.model.host_units import UnitRecord
from agent.model.instance import TASK_STATES, VM_STATES, Amounts, Instance
from agent.model.node_records import ComputeNode, Lease
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

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite

# --- compute nodes --------------------------------------------------------------------------------


def _compute_node_key(node: ComputeNode) -> tuple[str, ...]:
    return (node.uuid,)


def _compute_node_row(node: ComputeNode) -> dict[str, Any]:
    return {
        "uuid": node.uuid,
        "host": node.host,
        "name": node.name,
        "host_ip": node.host_ip,
        "vcpus": node.vcpus,
        "memory_mb": node.memory_mb,
        "local_gb": node.local_gb,
        "hypervisor_type": node.hypervisor_type,
        "hypervisor_version": node.hypervisor_version,
        "cpu_info": node.cpu_info,
        "cpu_allocation_ratio": node.cpu_allocation_ratio,
        "ram_allocation_ratio": node.ram_allocation_ratio,
        "disk_allocation_ratio": node.disk_allocation_ratio,
        "failed_builds": node.failed_builds,
        "dirty": node.dirty,
        "deleted": node.deleted,
        "created_at": node.created_at,
        "updated_at": node.updated_at,
    }


def _compute_node_record(row: Row[Any]) -> ComputeNode:
    return ComputeNode(
        uuid=row.uuid,
        host=row.host,
        name=row.name,
        host_ip=row.host_ip,
        vcpus=row.vcpus,
        memory_mb=row.memory_mb,
        local_gb=row.local_gb,
        hypervisor_type=row.hypervisor_type,
        hypervisor_version=row.hypervisor_version,
        cpu_info=row.cpu_info,
        cpu_allocation_ratio=row.cpu_allocation_ratio,
        ram_allocation_ratio=row.ram_allocation_ratio,
        disk_allocation_ratio=row.disk_allocation_ratio,
        failed_builds=row.failed_builds,
        dirty=row.dirty,
        deleted=row.deleted,
        created_at=row.created_at,
        updated_at=row.updated_at,
        version=row.version,
    )


NODES = VersionedTable(COMPUTE_NODE, _compute_node_key, _compute_node_row, _compute_node_record)

# --- leases ---------------------------------------------------------------------------------------


def _lease_key(lease: Lease) -> tuple[str, ...]:
    return (lease.node,)


def _lease_row(lease: Lease) -> dict[str, Any]:
    return {"node": lease.node, "host": lease.host, "expires_at": lease.expires_at}


def _lease_record(row: Row[Any]) -> Lease:
    return Lease(node=row.node, host=row.host, expires_at=row.expires_at, version=row.version)


LEASES = VersionedTable(LEASE, _lease_key, _lease_row, _lease_record)

# --- instances ------------------------------------------------------------------------------------


def _instance_key(instance: Instance) -> tuple[str, ...]:
    return (instance.uuid,)


def _instance_row(instance: Instance) -> dict[str, Any]:
    return {
        "uuid": instance.uuid,
        "project_id": instance.project_id,
        "user_id": instance.user_id,
        "flavor": flavor_text(instance.flavor),
        "os_type": instance.os_type,
        "host": instance.host,
        "node": instance.node,
        "launched_on": instance.launched_on,
        "vm_state": instance.vm_state,
        "task_state": instance.task_state,
        "old_flavor": flavor_text(instance.old_flavor) if instance.old_flavor else None,
        "new_flavor": flavor_text(instance.new_flavor) if instance.new_flavor else None,
        "image_properties": mapping_text(instance.image_properties),
        "volume_backed": instance.volume_backed,
        "hidden": instance.hidden,
        "deleted": instance.deleted,
        "created_at": instance.created_at,
        "updated_at": instance.updated_at,
    }


def _instance_record(row: Row[Any]) -> Instance:
    return Instance(
        uuid=row.uuid,
        project_id=row.project_id,
        user_id=row.user_id,
        flavor=flavor_of(row.flavor),
        os_type=row.os_type,
        host=row.host,
        node=row.node,
        launched_on=row.launched_on,
        vm_state=one_of(row.vm_state, VM_STATES),
        task_state=None if row.task_state is None else one_of(row.task_state, TASK_STATES),
        old_flavor=None if row.old_flavor is None else flavor_of(row.old_flavor),
        new_flavor=None if row.new_flavor is None else flavor_of(row.new_flavor),
        image_properties=properties_of(row.image_properties),
        volume_backed=row.volume_backed,
        hidden=row.hidden,
        deleted=row.deleted,
        created_at=row.created_at,
        updated_at=row.updated_at,
        version=row.version,
    )


INSTANCES = VersionedTable(INSTANCE, _instance_key, _instance_row, _instance_record)

# --- migrations -----------------------------------------------------------------------------------


def _migration_key(migration: Migration) -> tuple[str, ...]:
    return (migration.uuid,)


def _migration_row(migration: Migration) -> dict[str, Any]:
    return {
        "uuid": migration.uuid,
        "instance": migration.instance,
        "type": migration.type,
        "status": migration.status,
        "source_compute": migration.source_compute,
        "source_node": migration.source_node,
        "dest_compute": migration.dest_compute,
        "dest_node": migration.dest_node,
        "dest_host": migration.dest_host,
        "old_flavor_id": migration.old_flavor_id,
        "new_flavor_id": migration.new_flavor_id,
        "hidden": migration.hidden,
        "cross_cell_move": migration.cross_cell_move,
        "created_at": migration.created_at,
        "updated_at": migration.updated_at,
        "cleared": migration.cleared,
        "clearing": migration.clearing,
    }


def _migration_record(row: Row[Any]) -> Migration:
    return Migration(
        uuid=row.uuid,
        instance=row.instance,
        type=one_of(row.type, TYPES),
        status=one_of(row.status, STATUSES),
        source_compute=row.source_compute,
        source_node=row.source_node,
        dest_compute=row.dest_compute,
        dest_node=row.dest_node,
        dest_host=row.dest_host,
        old_flavor_id=row.old_flavor_id,
        new_flavor_id=row.new_flavor_id,
        hidden=row.hidden,
        cross_cell_move=row.cross_cell_move,
        cleared=row.cleared,
        clearing=row.clearing,
        created_at=row.created_at,
        updated_at=row.updated_at,
        version=row.version,
    )


MIGRATIONS = VersionedTable(MIGRATION, _migration_key, _migration_row, _migration_record)

# --- claims ---------------------------------------------------------------------------------------


def _claim_key(claim: Claim) -> tuple[str, ...]:
    return (claim.id,)


def _claim_row(claim: Claim) -> dict[str, Any]:
    return {
        "id": claim.id,
        "purpose": claim.purpose,
        "instance": claim.instance,
        "node": claim.node,
        "half": claim.half,
        "state": claim.state,
        "memory_mb": claim.amounts.memory_mb,
        "vcpus": claim.amounts.vcpus,
        "disk_mb": claim.amounts.disk_mb,
        "cells": cells_text(claim.cells),
        "flavor_id": claim.flavor_id,
        "migration": claim.migration,
        "origin": claim.origin,
        "digest": claim.digest,
        "created_at": claim.created_at,
        "updated_at": claim.updated_at,
        "mdevs": mdevs_text(claim.mdevs),
    }


def _claim_record(row: Row[Any]) -> Claim:
    return Claim(
        id=row.id,
        purpose=one_of(row.purpose, PURPOSES),
        instance=row.instance,
        node=row.node,
        half=one_of(row.half, HALVES),
        state=one_of(row.state, CLAIM_STATES),
        amounts=Amounts(
            memory_mb=whole(row.memory_mb), vcpus=whole(row.vcpus), disk_mb=whole(row.disk_mb)
        ),
        cells=cells_of(row.cells),
        mdevs=mdevs_of(row.mdevs),
        flavor_id=row.flavor_id,
        migration=row.migration,
        origin=row.origin,
        digest=row.digest,
        created_at=row.created_at,
        updated_at=row.updated_at,
        version=row.version,
    )


CLAIMS = VersionedTable(CLAIM, _claim_key, _claim_row, _claim_record)

# --- devices --------------------------------------------------------------------------------------


def _device_key(device: DeviceRecord) -> tuple[str, ...]:
    return device.node, device.address


def _device_row(device: DeviceRecord) -> dict[str, Any]:
    return {
        "node": device.node,
        "address": device.address,
        "vendor_id": device.vendor_id,
        "product_id": device.product_id,
        "type": device.type,
        "parent": device.parent,
        "numa_node": device.numa_node,
        "tags": mapping_text(device.tags),
        "serves": device.serves,
        "state": device.state,
        "holder": device.holder,
        "request": device.request,
        "present": device.present,
        "one_time_use": device.one_time_use,
        "used": device.used,
        "reserved": device.reserved,
        "reserved_at": device.reserved_at,
        "reservation_due": device.reservation_due,
    }


def _device_record(row: Row[Any]) -> DeviceRecord:
    return DeviceRecord(
        node=row.node,
        address=row.address,
        vendor_id=row.vendor_id,
        product_id=row.product_id,
        type=one_of(row.type, DEVICE_TYPES),
        parent=row.parent,
        numa_node=row.numa_node,
        tags=properties_of(row.tags),
        serves=one_of(row.serves, SERVES),
        state=one_of(row.state, DEVICE_STATES),
        holder=row.holder,
        request=row.request,
        present=row.present,
        one_time_use=row.one_time_use,
        used=row.used,
        reserved=row.reserved,
        reserved_at=row.reserved_at,
        reservation_due=row.reservation_due,
        version=row.version,
    )


DEVICES = VersionedTable(DEVICE, _device_key, _device_row, _device_record)

# --- assignable units -----------------------------------------------------------------------------


def _unit_key(unit: UnitRecord) -> tuple[str, ...]:
    return unit.node, unit.provider, unit.resource_class, unit.identifier


def _unit_row(unit: UnitRecord) -> dict[str, Any]:
    return {
        "node": unit.node,
        "provider": unit.provider,
        "resource_class": unit.resource_class,
        "identifier": unit.identifier,
        "metadata": mapping_text(unit.metadata),
        "holder": unit.holder,
        "present": unit.present,
    }


def _unit_record(row: Row[Any]) -> UnitRecord:
    return UnitRecord(
        node=row.node,
        provider=row.provider,
        resource_class=row.resource_class,
        identifier=row.identifier,
        metadata=properties_of(row.metadata),
        holder=row.holder,
        present=row.present,
        version=row.version,
    )


UNITS = VersionedTable(UNIT, _unit_key, _unit_row, _unit_record)


def _insert(connection: Connection, table: Table) -> "postgresql.Insert | sqlite.Insert":
    """Return an insert of the connection's dialect. The dialects are imported here, because an
    agent needs one of them only.
    """
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)


def insert_or_update(connection: Connection, table: Table) -> Insert:
    """Return a statement that inserts a row or replaces the one with its key."""
    statement = _insert(connection, table)
    keys = [column.name for column in table.primary_key]
    values = {
        column.name: statement.excluded[column.name]
        for column in table.c
        if column.name not in keys
    }
    return statement.on_conflict_do_update(index_elements=keys, set_=values)
