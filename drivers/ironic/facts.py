"""The facts of a bare-metal node: one unit of a resource class, no CPUs or memory to share; and
their provider.
"""

from dataclasses import dataclass

import os_resource_classes as orc

from agent.errors import DriverError
from agent.model.facts import HostFacts
from agent.model.provider_tree import ProviderTree
from drivers.ironic.node import NONE, BareMetalNode, Properties

# The provision states in which a node can be used. Old nodes that never were taken into service
# have None and are available nevertheless.
OFFERED_IN = frozenset({"available", None})


def unavailable(node: BareMetalNode) -> bool:
    """Whether the node cannot take an instance now. An unknown state counts as unavailable."""
    return (
        node.maintenance
        or node.power_state in ("error", None)
        or node.provision_state not in OFFERED_IN
    )


def reserved(node: BareMetalNode, *, skip_in_use: bool = False) -> int:
    """Return how much of the one unit is reserved: 0 or 1.

    ``skip_in_use``: [workarounds] skip_reserve_in_use_ironic_nodes; then an instance alone does not
    reserve its node.
    """
    in_use = node.instance is not None and not skip_in_use
    return int(unavailable(node) or in_use)


HYPERVISOR = "ironic"
UNIT = {"total": 1, "min_unit": 1, "max_unit": 1, "step_size": 1, "allocation_ratio": 1.0}


@dataclass(frozen=True, slots=True)
class BareMetalFacts(HostFacts):
    """The facts of a bare-metal node."""

    resource_class: str = ""
    """As Placement names it."""
    reserved: int = 1
    """1 while the node cannot take an instance."""
    node_traits: frozenset[str] = frozenset()
    properties: Properties = NONE
    """For information only."""


def facts_of(node: BareMetalNode, taken_at: float, *, skip_in_use: bool) -> BareMetalFacts:
    """Return the facts of ``node`` as ironic reported it at ``taken_at``, in seconds since the
    epoch.

    :raises DriverError: it has no resource class, so that no flavor could request it.
    """
    if node.resource_class is None:
        raise DriverError(
            f"node {node.uuid} has no resource class",
            f"openstack baremetal node set {node.uuid} --resource-class <class>",
            node=node.uuid,
        )
    return BareMetalFacts(
        name=node.uuid,
        taken_at=taken_at,
        hypervisor_type=HYPERVISOR,
        hypervisor_version=1,
        exclusive=True,
        resource_class=orc.normalize_name(node.resource_class),
        reserved=reserved(node, skip_in_use=skip_in_use),
        node_traits=node.traits,
        properties=node.properties,
    )


def put_node(tree: ProviderTree, facts: BareMetalFacts) -> None:
    """Give the node's root its one unit, and the traits that ironic has for it."""
    root = tree.provider(facts.name)
    tree.update_inventory(
        root.uuid, {**root.inventory, facts.resource_class: {**UNIT, "reserved": facts.reserved}}
    )
    tree.add_traits(root.uuid, *facts.node_traits)
