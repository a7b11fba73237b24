"""The documents of a node's records and guests: the model's names and values, without what only the
agent needs.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from operator import attrgetter
from typing import Any

from agent.errors import AgentError
from agent.model.devices import DeviceRecord, MdevSource, UnitRecord
from agent.model.facts import CpuFacts
from agent.model.instance import Instance, PlacedCell, TaskState
from agent.model.mirror import Consumers
from agent.model.names import printable
from agent.model.node_records import ENDED, Claim
from agent.numa.host import HostCell
from agent.pci.choice import free_devices
from agent.tracker.domains import GuestImport, ObservedGuest
from agent.tracker.errors import GuestsUnknown
from agent.tracker.node_state import NodeState
from agent.tracker.tracker import Tracker

JsonObject = dict[str, Any]

# Tasks that keep disks and networks busy.
IO_TASKS: frozenset[TaskState] = frozenset(
    {
        "resize_migrating",
        "rebuilding",
        "resize_prep",
        "image_snapshot",
        "image_backup",
        "rescuing",
        "unshelving",
    }
)


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
        "devices": [asdict(device) for device in devices if device.holder == claim.id],
        "units": [asdict(unit) for unit in units if unit.holder == claim.id],
        "mdevs": [asdict(mdev) for mdev in claim.mdevs],
        "created_at": claim.created_at,
        "updated_at": claim.updated_at,
        "version": claim.version,
    }


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


def node_guests(state: NodeState, found: GuestImport) -> JsonObject:
    """Return the document of a node's guests; ``errors`` says if the list may be incomplete."""
    name, why = state.node.name, state.host.guests_incomplete
    untold = (
        [
            GuestsUnknown(
                f"node {printable(name)}: there may be more guests: {printable(why)}",
                "see why: agent status",
            )
        ]
        if why
        else []
    )
    return {
        "name": name,
        "uuid": state.node.uuid,
        "guests": [_guest(guest) for guest in found.guests],
        "errors": [_error(error) for error in untold],
    }


def node_without_guests(uuid: str, name: str, error: AgentError) -> JsonObject:
    """Return the document of a node whose guests are unknown because of ``error``."""
    return {"name": name, "uuid": uuid, "guests": [], "errors": [_error(error)]}


def _guest(observed: ObservedGuest) -> JsonObject:
    guest, origin = observed.guest, observed.guest.origin
    return {
        "uuid": guest.uuid,
        "name": guest.name,
        "state": guest.state,
        "memory_mb": guest.memory_mib,
        "vcpus": guest.vcpus,
        "cells": [cell_document(cell) for cell in guest.cells],
        "devices": [str(address) for address in guest.devices],
        "flavor": origin.flavor.name if origin is not None else None,
        "project_id": origin.project_id if origin is not None else None,
        "user_id": origin.user_id if origin is not None else None,
        "outcome": observed.outcome,
        "claim": observed.claim,
        "refusals": [
            {"reason": refusal.reason, "remedy": refusal.remedy} for refusal in observed.refusals
        ],
    }


def _error(error: AgentError) -> JsonObject:
    return {"code": error.code, "message": error.message, "remedy": error.remedy}


def node_records(state: NodeState) -> JsonObject:
    """Return the document of a node's records: their sums, what the host has, and the problems
    because of which the free amounts are uncertain.
    """
    node, providers = (
        state.node,
        {cell: provider for provider, cell in state.host.cell_providers.items()},
    )
    return {
        "host": node.host,
        "host_ip": node.host_ip,
        "hypervisor_type": node.hypervisor_type,
        "hypervisor_version": node.hypervisor_version,
        "total": {
            "vcpus": node.vcpus,
            "memory_mb": node.memory_mb,
            "disk_mb": node.disk_mb,
        },
        "ratios": {
            "vcpus": node.cpu_allocation_ratio,
            "memory_mb": node.ram_allocation_ratio,
            "disk_mb": node.disk_allocation_ratio,
        },
        "failed_builds": node.failed_builds,
        "dirty": node.dirty,
        "version": node.version,
        "usage": asdict(state.usage),
        "reserved": asdict(state.host.reserved),
        "free": _free(state),
        "available": state.host.available,
        "cpu": _cpu(state.host.cpu),
        "cells": [_cell(cell, providers.get(cell.id)) for cell in state.cells],
        "devices": _count_devices(state),
        "pools": _pools(state),
        "mdevs": [
            document
            for source in state.host.mdevs or ()
            if (document := _mdevs(source, state))["total"] or document["claimed"]
        ],
        "units": [asdict(unit) for unit in state.units.values()],
        "stats": stats(state.instances.values(), node.failed_builds),
        "problems": list(state.problems),
    }


def stats(instances: Iterable[Instance], failed_builds: int) -> JsonObject:
    """Return the counts of the ``instances`` that use resources of the node."""
    counts: Counter[str] = Counter(num_instances=0, io_workload=0)
    for instance in instances:
        if instance.removed:
            continue
        counts["num_instances"] += 1
        counts[f"num_vm_{instance.vm_state}"] += 1
        counts[f"num_task_{instance.task_state}"] += 1
        counts[f"num_os_type_{instance.os_type}"] += 1
        counts[f"num_proj_{instance.project_id}"] += 1
        counts["io_workload"] += instance.vm_state == "building" or instance.task_state in IO_TASKS
    return {"uptime": None, **counts, "failed_builds": failed_builds}


def _free(state: NodeState) -> JsonObject:
    """Return what is not claimed, without overcommitment; negative if more is used. None: the total
    is unknown.
    """
    node, used = state.node, state.used
    pairs = {
        "memory_mb": (node.memory_mb, used.memory_mb),
        "vcpus": (node.vcpus, used.vcpus),
        "disk_mb": (node.disk_mb, used.disk_mb),
    }
    return {
        name: None if total is None else total - amount for name, (total, amount) in pairs.items()
    }


def _cpu(cpu: CpuFacts | None) -> JsonObject | None:
    if cpu is None:
        return None
    return {
        "architecture": cpu.architecture,
        "vendor": cpu.vendor,
        "model": cpu.model,
        "features": sorted(cpu.features),
    }


def _cell(cell: HostCell, provider: str | None) -> JsonObject:
    return {
        "id": cell.id,
        "provider": provider,
        "memory_mb": cell.memory_mib,
        "memory_mb_used": cell.memory_used_mib,
        "shared": sorted(cell.shared),
        "shared_used": cell.shared_used,
        "dedicated": sorted(cell.dedicated),
        "pinned": sorted(cell.pinned),
        "degraded": sorted(cell.degraded),
        "offline": sorted(cell.offline),
        "siblings": [sorted(core) for core in cell.siblings],
        "socket": cell.socket,
        "distances": {str(other): distance for other, distance in sorted(cell.distances.items())},
        "physnets": sorted(cell.physnets),
        "tunneled": cell.tunneled,
        "pages": [asdict(pages) for pages in cell.pages],
    }


def _pools(state: NodeState) -> list[JsonObject]:
    """Return the pools of devices for guests: devices that no request can tell apart, with the
    numbers of all and of free ones.
    """
    free = {device.address for device in free_devices(state.devices)}
    pools: dict[tuple[Any, ...], list[DeviceRecord]] = {}
    for device in sorted(
        (
            device
            for device in state.devices.values()
            if device.present and device.serves == "guests"
        ),
        key=attrgetter("address"),
    ):
        provider = state.host.device_providers.get(device.address)
        key = (
            device.parent or device.address,
            device.type,
            device.vendor_id,
            device.product_id,
            device.numa_node,
            tuple(sorted(device.tags.items())),
            provider,
        )
        pools.setdefault(key, []).append(device)
    return [
        {
            "parent": parent,
            "type": kind,
            "vendor_id": vendor,
            "product_id": product,
            "numa_node": cell,
            "tags": dict(tags),
            "provider": provider,
            "total": len(some),
            "free": sum(device.address in free for device in some),
        }
        for (parent, kind, vendor, product, cell, tags, provider), some in pools.items()
    ]


def _count_devices(state: NodeState) -> Mapping[str, Any]:
    """Return how many devices there are, by state."""
    counts = dict.fromkeys(("available", "claimed", "allocated"), 0)
    for device in state.devices.values():
        counts[device.state] += 1
    return counts


def _mdevs(source: MdevSource, state: NodeState) -> JsonObject:
    """Return the document of a parent of mediated devices, with the number that claims have."""
    shares = (mdev for claim in state.claims.values() for mdev in claim.mdevs)
    document = asdict(source)
    # The guests show it themselves; what is not offered is nobody's concern.
    del document["guests"], document["most"]
    return {
        **document,
        "claimed": sum(
            mdev.count
            for mdev in shares
            if (mdev.parent, mdev.resource_class) == (source.parent, source.resource_class)
        ),
    }


NO_RECORDS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "guests": (),
    "claims": (),
    "migrations": (),
    "devices": (),
}
"""What a page shows of the records of a node without any."""


def node_page_document(
    node: Mapping[str, Any], consumers: Consumers, state: NodeState | None, tracker: Tracker | None
) -> JsonObject:
    """Return the document of ``node``, which has the keys of a node in a report, ``audited_at`` and
    ``last_good_audit_at``.

    ``state``: the node's records, None if they are unknown; ``tracker`` is then not used.
    """
    document = {**node, "allocations": allocations_document(consumers)}
    if state is None:
        return {**document, "records": None, **NO_RECORDS}
    devices, units = state.devices.values(), state.units.values()
    return {
        **document,
        "records": node_records(state),
        "guests": _guests(state, tracker) if tracker is not None else (),
        "claims": [
            claim_document(claim, devices, units, state.node.name)
            for claim in state.claims.values()
        ],
        "migrations": [
            asdict(migration)
            for migration in state.migrations.values()
            if migration.status not in ENDED
        ],
        "devices": [asdict(device) for device in devices],
    }


def allocations_document(consumers: Consumers) -> JsonObject:
    """Return what each consumer holds of each provider: uuid of the consumer to uuid of the
    provider to resource class to amount.
    """
    held: dict[str, dict[str, dict[str, int]]] = {}
    for provider, of_provider in consumers.items():
        for consumer, resources in of_provider.items():
            held.setdefault(consumer, {})[provider] = dict(resources)
    return held


def _guests(state: NodeState, tracker: Tracker) -> Sequence[Mapping[str, Any]]:
    if not state.host.guests:
        # Nothing is read from the store for a node that has none, because there may be thousands.
        return ()
    try:
        guests: Sequence[Mapping[str, Any]] = node_guests(state, tracker.preview_import(state))[
            "guests"
        ]
    except AgentError:
        # The driver does not report guests; where it should and could not, the audit says so.
        return ()
    return guests
