"""A driver in nova's style with a reshape of its own, for ``bench.same_behaviour``: it is copied
beside each of the trees of code that are compared, and imports nothing of them but the interface.

The CPUs are on the root, and once the file ``split`` is in the store's folder, in two children.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.errors import ReshapeNeeded
from agent.model.facts import HostFacts


def inventory(totals: Mapping[str, int]) -> dict[str, Any]:
    """Return whole inventory records."""
    units = {"reserved": 0, "min_unit": 1, "step_size": 1, "allocation_ratio": 1.0}
    return {name: {"total": total, "max_unit": total, **units} for name, total in totals.items()}


class SplitDriver:
    """One node named ``split-host``."""

    def __init__(self, _conf: Any) -> None:
        self._folder = Path()

    def start(self, host: Any) -> None:
        """Remember where the store is."""
        self._identity, self._folder = host.identity, Path(host.state_path)

    def stop(self) -> None:
        """Do nothing."""

    def nodes(self, refresh: bool = False) -> Mapping[str, str]:
        """Return the node, uuid to name."""
        return {self._identity: "split-host"}

    def facts(self, name: str) -> HostFacts:
        """Return facts without contents: the driver shapes the tree itself."""
        return HostFacts(name, time.time(), "split")

    def is_node_deleted(self, name: str) -> bool:
        """Whether there is no such node."""
        return name != "split-host"

    def update_provider_tree(
        self, provider_tree: Any, nodename: str, allocations: dict[str, Any] | None = None
    ) -> None:
        """Edit the node's tree in place, and the allocations that have to move."""
        if not (self._folder / "split").exists():
            totals = {"VCPU": 16, "MEMORY_MB": 16384}
            provider_tree.update_inventory(nodename, inventory(totals))
            return
        root = provider_tree.data(nodename)
        moving = "VCPU" in root.inventory
        if moving and allocations is None:
            raise ReshapeNeeded()
        halves = [f"{nodename}_HALF{number}" for number in range(2)]
        for name in halves:
            if not provider_tree.exists(name):
                provider_tree.new_child(name, nodename)
            provider_tree.update_inventory(name, inventory({"VCPU": 8}))
        provider_tree.update_inventory(nodename, inventory({"MEMORY_MB": 16384}))
        for number, (_, record) in enumerate(sorted((allocations or {}).items())):
            held = record["allocations"]
            if moving and "VCPU" in held.get(root.uuid, {}).get("resources", {}):
                amount = held[root.uuid]["resources"].pop("VCPU")
                half = provider_tree.data(halves[number % 2]).uuid
                held[half] = {"resources": {"VCPU": amount}}
