"""The facts of a bare-metal node: it has no CPUs and no memory to share, and is rented
out whole.
"""

from dataclasses import dataclass

import os_resource_classes as orc

from agent.errors import DriverError
from agent.model.facts import HostFacts
from agent.model.provider_tree import ProviderTree
from drivers.ironic.node import NONE, BareMetalNode, Properties

# ``None`` is what old nodes have that were never taken into service and are free nevertheless.
OFFERED_IN = frozenset({"available", None})


def unavailable(node: BareMetalNode) -> bool:
    """Whether nothing can be put on the node now. A state that nobody has heard of yet counts as
    such.
    """
    return (
        node.maintenance
        or node.power_state in ("error", None)
        or node.provision_state not in OFFERED_IN
    )


def reserved(node: BareMetalNode, *, skip_in_use: bool = False) -> int:
    """How much of the one unit is kept from the scheduler: 0 or 1.

    ``skip_in_use``: [workarounds] skip_reserve_in_use_ironic_nodes; then an instance alone does not
    reserve its node.
    """
    in_use = node.instance is not None and not skip_in_use
    return int(unavailable(node) or in_use)


HYPERVISOR = "ironic"
UNIT = {"total": 1, "min_unit": 1, "max_unit": 1, "step_size": 1, "allocation_ratio": 1.0}


@dataclass(frozen=True, slots=True)
class BareMetalFacts(HostFacts):
    """``resource_class`` as Placement knows it; ``reserved`` is 1 while nobody can have the node;
    ``properties`` are for information.
    """

    resource_class: str = ""
    reserved: int = 1
    node_traits: frozenset[str] = frozenset()
    properties: Properties = NONE


def facts_of(node: BareMetalNode, taken_at: float, *, skip_in_use: bool) -> BareMetalFacts:
    """What is true of ``node``, as ironic told at that time, in seconds since the epoch.

    :raises DriverError: it has no resource class, so that nobody could ask for it.
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
    """Give the node's root its one unit, and the traits that ironic has of it."""
    root = tree.provider(facts.name)
    tree.update_inventory(
        root.uuid, {**root.inventory, facts.resource_class: {**UNIT, "reserved": facts.reserved}}
    )
    tree.add_traits(root.uuid, *facts.node_traits)
