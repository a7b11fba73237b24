"""A driver as one would write it for nova: its whole tree in ``update_provider_tree``, with a
reshape of its own.
"""

import time
from collections.abc import Mapping
from typing import Any

from agent.driver.interface import HostContext
from agent.errors import ReshapeFailed, ReshapeNeeded
from agent.model.facts import HostFacts
from tests.support.agent import NAME, ROOT


class NovaStyleDriver:
    """A host that first reports its CPUs on the root, and once ``split`` in a child for each of its
    cells.

    Nothing of the tree but what nova's own drivers use is used here, and the allocations are edited
    in place.
    """

    def __init__(
        self,
        vcpus: int = 16,
        memory_mb: int = 16384,
        cells: int = 2,
        nodes: Mapping[str, str] | None = None,
    ) -> None:
        self.vcpus, self.memory_mb, self.cells = vcpus, memory_mb, cells
        self.split = False
        self.managed = dict(nodes or {ROOT: NAME})
        self.calls: list[bool] = []
        """For each call, whether allocations were given."""

    def start(self, host: HostContext) -> None:
        pass

    def stop(self) -> None:
        pass

    def nodes(self, refresh: bool = False) -> Mapping[str, str]:
        return dict(self.managed)

    def facts(self, name: str) -> HostFacts:
        return HostFacts(name, time.time(), "nova-style")

    def is_node_deleted(self, name: str) -> bool:
        return name not in self.managed.values()

    def cell_name(self, nodename: str, cell: int) -> str:
        return f"{nodename}_CELL{cell}"

    def update_provider_tree(
        self, provider_tree: Any, nodename: str, allocations: dict[str, Any] | None = None
    ) -> None:
        self.calls.append(allocations is not None)
        root = provider_tree.data(nodename)
        if not self.split:
            provider_tree.update_inventory(
                nodename,
                {"VCPU": self.record(self.vcpus), "MEMORY_MB": self.record(self.memory_mb)},
            )
            return
        must_move = "VCPU" in root.inventory
        if must_move and allocations is None:
            raise ReshapeNeeded()
        for cell in range(self.cells):
            self.update_cell(provider_tree, nodename, cell)
        provider_tree.update_inventory(nodename, {"MEMORY_MB": self.record(self.memory_mb)})
        if must_move and allocations is not None:
            self.move(provider_tree, nodename, allocations)

    def record(self, total: int) -> dict[str, Any]:
        return {
            "total": total,
            "reserved": 0,
            "min_unit": 1,
            "max_unit": total,
            "step_size": 1,
            "allocation_ratio": 1.0,
        }

    def update_cell(self, provider_tree: Any, nodename: str, cell: int) -> None:
        name = self.cell_name(nodename, cell)
        if not provider_tree.exists(name):
            provider_tree.new_child(name, nodename)
        provider_tree.update_inventory(name, {"VCPU": self.record(self.vcpus // self.cells)})
        provider_tree.add_traits(name, "HW_NUMA_ROOT")

    def move(self, provider_tree: Any, nodename: str, allocations: dict[str, Any]) -> None:
        """Move each consumer's CPUs to the first cell that has room for them."""
        root = provider_tree.data(nodename).uuid
        cells = [
            provider_tree.data(self.cell_name(nodename, cell)).uuid for cell in range(self.cells)
        ]
        room = dict.fromkeys(cells, self.vcpus // self.cells)
        for consumer, record in sorted(allocations.items()):
            held = record["allocations"]
            if root not in held or "VCPU" not in held[root]["resources"]:
                continue
            amount = held[root]["resources"].pop("VCPU")
            cell = next((one for one in cells if room[one] >= amount), None)
            if cell is None:
                raise ReshapeFailed(f"no cell has room for the {amount} CPUs of {consumer}")
            room[cell] -= amount
            held[cell] = {"resources": {"VCPU": amount}}
