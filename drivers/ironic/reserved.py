"""Whether a node can be had: a pure function of its states."""

from drivers.ironic.node import BareMetalNode

# ``None`` is what old nodes have that were never taken into service and are free nevertheless.
OFFERED_IN = frozenset({"available", None})


def unavailable(node: BareMetalNode) -> bool:
    """Whether nothing can be put on the node now. A state that nobody has heard of yet counts as such."""
    return node.maintenance or node.power_state in ("error", None) or node.provision_state not in OFFERED_IN


def reserved(node: BareMetalNode, *, skip_in_use: bool = False) -> int:
    """How much of the one unit is kept from the scheduler: 0 or 1.

    ``skip_in_use``: [workarounds] skip_reserve_in_use_ironic_nodes; then an instance alone does not reserve its node.
    """
    in_use = node.instance is not None and not skip_in_use
    return int(unavailable(node) or in_use)
