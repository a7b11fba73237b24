"""Facts of a host with two cells, and what Placement has of it."""

import dataclasses
from typing import Any

from agent.model.facts import Cell, CpuFacts, HostFacts, Topology
from agent.model.provider_tree import SHARING_TRAIT, ProviderTree

ROOT = "5f9c2a34-7d1e-4a8b-9c46-000000000001"
STORAGE = "5f9c2a34-7d1e-4a8b-9c46-000000000030"
AGGREGATE = "7c5d1a10-6f4d-4a0e-8c63-5a8e0a2b9a11"
NAME = "node-a"
TWO_CELLS = Topology(
    (Cell(0, frozenset({0, 1, 2, 3}), 4096), Cell(8, frozenset({4, 5, 6, 7}), 4096))
)
FACTS = HostFacts(
    NAME,
    1.0,
    "QEMU",
    cpu=CpuFacts(frozenset(range(8))),
    memory_mib=8192,
    disk_gib=100,
    numa=TWO_CELLS,
)


def facts(**changes: Any) -> HostFacts:
    """``FACTS`` with changes; ``incomplete`` is a list of sections."""
    if "incomplete" in changes:
        changes["incomplete"] = dict.fromkeys(changes["incomplete"], "it broke")
    return dataclasses.replace(FACTS, **changes)


def amount(total: int, ratio: float = 1.0, reserved: int = 0) -> dict[str, Any]:
    """The record that the core makes of a total."""
    return {
        "total": total,
        "reserved": reserved,
        "min_unit": 1,
        "max_unit": total,
        "step_size": 1,
        "allocation_ratio": ratio,
    }


def root_only() -> ProviderTree:
    """A root without anything."""
    tree = ProviderTree()
    tree.new_root(NAME, ROOT)
    return tree


def with_storage(**record: int) -> ProviderTree:
    """A driver's tree, in which a root from outside shares DISK_GB. ``record``: more of its
    inventory.
    """
    tree = root_only()
    tree.update_aggregates(ROOT, [AGGREGATE])
    tree.new_root("storage", STORAGE)
    tree.update_inventory(STORAGE, {"DISK_GB": {"total": 1000, **record}})
    tree.update_traits(STORAGE, [SHARING_TRAIT])
    tree.update_aggregates(STORAGE, [AGGREGATE])
    return tree.scoped(ROOT)


def contents(tree: ProviderTree) -> dict[str, dict[str, Any]]:
    """Inventories by provider name."""
    return {
        one.name: {name: dict(record) for name, record in one.inventory.items()}
        for one in tree.providers()
    }
