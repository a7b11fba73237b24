"""The part of the tree that counts assignable units: an inventory for each class, on the provider
that the facts name.
"""

from collections import Counter

import os_resource_classes as orc

from agent.model.facts import HostFacts
from agent.model.inventory import Record
from agent.model.names import ProviderUuid, child_uuid
from agent.model.provider_tree import Provider, ProviderTree
from agent.model.unit_record import AssignableUnit
from agent.tree.cell_tree import is_cell_name

# Classes of the other facts, though their records may look like a count of units.
OF_OTHERS = frozenset(
    {orc.VCPU, orc.PCPU, orc.MEMORY_MB, orc.DISK_GB, orc.VGPU, orc.MEM_ENCRYPTION_CONTEXT}
)


def put_units(tree: ProviderTree, present: ProviderTree, root: str, facts: HostFacts) -> None:
    """Give ``tree`` the inventories of the units of ``facts``; if these are not complete, what
    ``present`` has of them.
    """
    if not facts.complete("units"):
        _keep_last(tree, present, root)
        return
    for (provider, resource_class), total in Counter(
        (counted_on(one, tree, root), one.resource_class) for one in facts.units or ()
    ).items():
        if not tree.exists(provider):
            tree.new_child(provider, root)
        _add(tree, provider, {resource_class: _counted(total)})


def counted_on(unit: AssignableUnit, tree: ProviderTree, root: str) -> str:
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
    name = counted_on(unit, present, root)
    return present.provider(name).uuid if present.exists(name) else child_uuid(root, name)


def _counted(total: int) -> Record:
    return {
        "total": total,
        "reserved": 0,
        "min_unit": 1,
        "max_unit": total,
        "step_size": 1,
        "allocation_ratio": 1.0,
    }


def _units(provider: Provider) -> dict[str, Record]:
    """Return the inventories of the provider that may count units: Placement does not mark them,
    but nothing of them is reserved and their ratio is 1.
    """
    return {
        name: record
        for name, record in provider.inventory.items()
        if name not in OF_OTHERS and record == _counted(int(record["total"]))
    }


def _keep_last(tree: ProviderTree, present: ProviderTree, root: str) -> None:
    """Keep the units that Placement has, with the providers that have nothing else."""
    for uuid in present.get_provider_uuids_in_tree(root) if present.exists(root) else ():
        last = present.provider(uuid)
        units = _units(last)
        # The provider was created for other resources, unless it has nothing but units.
        if (
            units
            and not tree.exists(last.name)
            and len(units) == len(last.inventory)
            and last.parent_uuid == root
            and not present.children(uuid)
        ):
            tree.new_child(last.name, root)
        if tree.exists(last.name):
            _add(
                tree,
                last.name,
                {
                    name: record
                    for name, record in units.items()
                    if name not in tree.provider(last.name).inventory
                },
            )


def _add(tree: ProviderTree, provider: str, inventory: dict[str, Record]) -> None:
    tree.update_inventory(provider, {**tree.provider(provider).inventory, **inventory})
