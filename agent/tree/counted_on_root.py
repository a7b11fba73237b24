"""Classes of children that the operator wants on the root, as old releases had them: to go back to one of those."""

import os_resource_classes as orc

from agent.tree.encryption_tree import CHILDREN, CLASS
from agent.model.names import ProviderUuid
from agent.model.provider_tree import ProviderTree

_SEV = CHILDREN["sev"]


def count_on_root(tree: ProviderTree, root: ProviderUuid, classes: frozenset[str]) -> None:
    """Have on the root what its children have of ``classes``. A child of which nothing is left is not made."""
    if orc.VGPU in classes:
        _fold(tree, root, orc.VGPU, [uuid for uuid in tree.get_provider_uuids_in_tree(root) if uuid != root], together=True)
    if CLASS in classes and tree.exists(sev := _SEV.name(tree.name_of(root))):
        # A guest has one context, and the other techniques never were on the root.
        _fold(tree, root, CLASS, [tree.provider(sev).uuid], together=False)
        tree.add_traits(root, _SEV.trait)


def _fold(tree: ProviderTree, root: ProviderUuid, name: str, children: list[ProviderUuid], *, together: bool) -> None:
    having = [uuid for uuid in reversed(children) if name in tree.provider(uuid).inventory]
    if not having:
        return
    inventory = tree.provider(root).inventory
    records = [tree.provider(uuid).inventory[name] for uuid in (*having, *((root,) if name in inventory else ()))]
    total = sum(int(record["total"]) for record in records)
    most = total if together else max(int(record["max_unit"]) for record in records)
    tree.update_inventory(root, {**inventory, name: {**records[0], "total": total, "max_unit": most}})
    for uuid in having:
        left = {other: record for other, record in tree.provider(uuid).inventory.items() if other != name}
        if left or tree.children(uuid):
            tree.update_inventory(uuid, left)
        else:
            tree.remove(uuid)
