"""What is promised on a node, as it is now."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from agent.api.documents.shown import JsonObject, unit_document
from agent.model.compute_node import ComputeNode
from agent.numa.host import HostCell
from agent.tracker.node_state import NodeState
from agent.tracker.stats import stats


def node_records(state: NodeState) -> JsonObject:
    """The sums of the node's records, what the host has, and all that keeps anybody from knowing what is free."""
    node = state.node
    return {
        **_described(node),
        "usage": asdict(state.usage),
        "reserved": asdict(state.host.reserved),
        "available": state.host.available,
        "cells": [_cell(one) for one in state.cells],
        "devices": _tallied(state),
        "units": [unit_document(one) for one in state.units.values()],
        "stats": dict(stats(state.instances.values(), {}, node.failed_builds)),
        "problems": list(state.problems),
    }


def _described(node: ComputeNode) -> JsonObject:
    return {
        "total": {"vcpus": node.vcpus, "memory_mb": node.memory_mb, "disk_mb": None if node.local_gb is None else node.local_gb * 1024},
        "ratios": {"vcpus": node.cpu_allocation_ratio, "memory_mb": node.ram_allocation_ratio, "disk_mb": node.disk_allocation_ratio},
        "failed_builds": node.failed_builds,
        "dirty": node.dirty,
        "version": node.version,
    }


def _cell(cell: HostCell) -> JsonObject:
    return {
        "id": cell.id,
        "memory_mb": cell.memory_mib,
        "memory_mb_used": cell.memory_used_mib,
        "shared": sorted(cell.shared),
        "shared_used": cell.shared_used,
        "dedicated": sorted(cell.dedicated),
        "pinned": sorted(cell.pinned),
        "degraded": sorted(cell.degraded),
        "pages": [asdict(one) for one in cell.pages],
    }


def _tallied(state: NodeState) -> Mapping[str, Any]:
    """How many devices there are, by their states."""
    counts = dict.fromkeys(("available", "claimed", "allocated"), 0)
    for one in state.devices.values():
        counts[one.state] += 1
    return counts
