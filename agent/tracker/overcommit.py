"""What of a node is promised beyond its ratios: worth a warning, because such claims trusted Placement and had no limits. Pure."""

from collections.abc import Iterator

from agent.model.amounts import Amounts
from agent.model.compute_node import ComputeNode
from agent.model.inventory import capacity
from agent.model.names import printable
from agent.model.report import Drift


def overcommitted(node: ComputeNode, reserved: Amounts, used: Amounts) -> Iterator[Drift]:
    """A line for each resource of which more is ``used`` than the node may give. What the driver never told has no bounds."""
    disk_mb = None if node.local_gb is None else node.local_gb * 1024
    kinds = (
        ("CPUs", node.vcpus, node.cpu_allocation_ratio, reserved.vcpus, used.vcpus),
        ("MiB of memory", node.memory_mb, node.ram_allocation_ratio, reserved.memory_mb, used.memory_mb),
        ("MiB of disk", disk_mb, node.disk_allocation_ratio, reserved.disk_mb, used.disk_mb),
    )
    for what, total, ratio, kept, taken in kinds:
        if total is not None and taken - kept > capacity({"total": total, "reserved": kept, "allocation_ratio": ratio}):
            told = f"node {printable(node.name)}: {taken} {what} are promised, of {total} with a ratio of {ratio:g}; {total - taken} are free"
            yield Drift("overcommitted", "warning", told, "move guests away, and claim with limits", node.uuid)
