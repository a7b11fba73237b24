"""Whether a scheduler can tell which devices are near a guest's CPUs. Pure, and from the options alone."""

from agent.tree.policy import Policy
from agent.pci.settings import PciSettings


def affinity_warning(policy: Policy, pci: PciSettings) -> str | None:
    """What to tell of devices below their cells while all CPUs are counted on the root, which is above every cell."""
    if policy.layout != "nested" or not (pci.report and pci.specs) or policy.host.dedicated is not None:
        return None
    return (
        "the tree is nested and has devices below its cells, but all CPUs are on the root: same_subtree of both says nothing of how near they are; "
        "set [compute] cpu_dedicated_set, or ask for HW_NUMA_ROOT in a group of its own"
    )
