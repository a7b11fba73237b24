"""Documents of records: the model's names and values, without what only the agent needs."""

from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from agent.model.claim import Claim, Migration
from agent.model.devices import DeviceRecord
from agent.model.guest import PlacedCell
from agent.model.host_units import UnitRecord
from agent.model.instance import Instance

JsonObject = dict[str, Any]


def claim_document(
    claim: Claim,
    devices: Collection[DeviceRecord],
    units: Collection[UnitRecord],
    node_name: str | None,
) -> JsonObject:
    """Return the document of a claim, with those of ``devices`` and ``units`` that it holds.

    ``node_name``: the name of its node, None if it is not known here.
    """
    return {
        "id": claim.id,
        "purpose": claim.purpose,
        "instance": claim.instance,
        "node": claim.node,
        "node_name": node_name,
        "half": claim.half,
        "state": claim.state,
        "amounts": asdict(claim.amounts),
        "cells": [cell_document(cell) for cell in claim.cells],
        "flavor_id": claim.flavor_id,
        "migration": claim.migration,
        "origin": claim.origin,
        "devices": [device_document(device) for device in devices if device.holder == claim.id],
        "units": [unit_document(unit) for unit in units if unit.holder == claim.id],
        "mdevs": [asdict(mdev) for mdev in claim.mdevs],
        "created_at": claim.created_at,
        "updated_at": claim.updated_at,
        "version": claim.version,
    }


def device_document(device: DeviceRecord) -> JsonObject:
    """Return the document of a device."""
    return asdict(device)


def unit_document(unit: UnitRecord) -> JsonObject:
    """Return the document of a unit."""
    return asdict(unit)


def instance_document(instance: Instance) -> JsonObject:
    """Return the document of an instance."""
    return asdict(instance)


def migration_document(migration: Migration) -> JsonObject:
    """Return the document of a migration."""
    return asdict(migration)


def cell_document(placed: PlacedCell) -> JsonObject:
    """Return the document of a guest cell on its host cell. ``pins``: guest CPU to host CPU."""
    return {
        "host_cell": placed.host_cell,
        "memory_mb": placed.cell.memory_mib,
        "page_size_kib": placed.page_size_kib,
        "shared": sorted(placed.cell.shared),
        "pins": {str(guest): host for guest, host in sorted(placed.pins.items())},
        "emulator": sorted(placed.reserved),
    }
