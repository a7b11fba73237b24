"""The part of the tree that counts assignable units: an inventory for each class, on the provider
that the facts name.
"""

from collections import Counter

import os_resource_classes as orc

from agent.model.facts import HostFacts
from agent.model.inventory import Record
from agent.model.names import ProviderUuid, child_uuid
from agent.model.provider import Provider
from agent.model.provider_tree import ProviderTree
from agent.model.unit_record import AssignableUnit
from agent.tree.cell_tree import is_cell_name
from agent.tree.node_trees import NodeTrees, inventory_record

# Classes of the other facts, though their records may look like a count of units.
OF_OTHERS = frozenset(
    {orc.VCPU, orc.PCPU, orc.MEMORY_MB, orc.DISK_GB, orc.VGPU, orc.MEM_ENCRYPTION_CONTEXT}
)


def put_units(trees: NodeTrees, facts: HostFacts) -> None:
    """Give the desired tree the inventories of the units of ``facts``; if these are not complete,
    what Placement has of them.
    """
    if not facts.complete("units"):
        _keep_last(trees)
        return
    totals = Counter(
        (provider_name(unit, trees.desired, trees.root), unit.resource_class)
        for unit in facts.units or ()
    )
    for (provider, resource_class), total in totals.items():
        if not trees.desired.exists(provider):
            trees.desired.new_child(provider, trees.root)
        trees.add_inventory(provider, {resource_class: inventory_record(total)})


def provider_name(unit: AssignableUnit, tree: ProviderTree, root: str) -> str:
    """Return the name of the provider that counts ``unit``: the root instead of a cell that has no
    provider, as in a flat layout.
    """
    node = tree.name_of(root)
    name = unit.provider_name(node)
    return node if is_cell_name(name, node) and not tree.exists(name) else name


def provider_of(
    unit: AssignableUnit, node: str, root: ProviderUuid, present: ProviderTree
) -> ProviderUuid:
    """Return the uuid of the provider that counts ``unit`` of the node called ``node``, as
    Placement has it in ``present`` or will have it.
    """
    if not present.exists(root):
        return root if unit.provider is None else child_uuid(root, unit.provider_name(node))
    name = provider_name(unit, present, root)
    return present.provider(name).uuid if present.exists(name) else child_uuid(root, name)


def _units(provider: Provider) -> dict[str, Record]:
    """Return the inventories of the provider that may count units: Placement does not mark them,
    but nothing of them is reserved and their ratio is 1.
    """
    return {
        name: record
        for name, record in provider.inventory.items()
        if name not in OF_OTHERS and record == inventory_record(int(record["total"]))
    }


def _keep_last(trees: NodeTrees) -> None:
    """Keep the units that Placement has, with the providers that have nothing else."""
    for last in trees.present_providers:
        units = _units(last)
        # The provider was created for other resources, unless it has nothing but units.
        if (
            units
            and not trees.desired.exists(last.name)
            and len(units) == len(last.inventory)
            and last.parent_uuid == trees.root
            and not trees.present.children(last.uuid)
        ):
            trees.desired.new_child(last.name, trees.root)
        if trees.desired.exists(last.name):
            known = trees.desired.provider(last.name).inventory
            trees.add_inventory(
                last.name, {name: record for name, record in units.items() if name not in known}
            )
