"""Children that count one class each, and where in the tree they hang."""

from collections.abc import Mapping

from agent.tree.cell_tree import cell_name
from agent.model.inventory import Record
from agent.model.provider_tree import ProviderTree


def place_of(tree: ProviderTree, root: str, numa_node: int | None) -> str:
    """The name of what a device of that cell hangs from: the cell, or the root where cells have no provider or none is known."""
    name = tree.name_of(root)
    cell = cell_name(name, numa_node) if numa_node is not None else name
    return cell if tree.exists(cell) else name


def put_child(tree: ProviderTree, name: str, parent: str, inventory: Mapping[str, Record]) -> None:
    """Have a child of just that inventory. It may be here from last time, because something foreign lies below it, and belong elsewhere by now."""
    if tree.exists(name):
        tree.reparent(name, parent)
    else:
        tree.new_child(name, parent)
    tree.update_inventory(name, inventory)


def counted(total: int, most: int) -> Record:
    """The record of a class of which a consumer may have at most ``most``."""
    return {"total": total, "reserved": 0, "min_unit": 1, "max_unit": most, "step_size": 1, "allocation_ratio": 1.0}


def keep_last(tree: ProviderTree, present: ProviderTree, root: str, name: str, classes: frozenset[str]) -> bool:
    """Have what ``present`` has of ``classes`` on the provider called ``name``. Returns whether it is there and ``tree`` had none of it."""
    if not present.exists(name):
        return False
    last = present.provider(name)
    inventory = {one: record for one, record in last.inventory.items() if one in classes}
    if not inventory or (tree.exists(name) and tree.provider(name).inventory.keys() & classes):
        return False
    if not tree.exists(name):
        tree.new_child(name, str(last.parent_uuid) if last.parent_uuid and tree.exists(last.parent_uuid) else root)
    tree.update_inventory(name, {**tree.provider(name).inventory, **inventory})
    return True
