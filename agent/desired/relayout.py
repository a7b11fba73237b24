"""A change of layout moves PCPU between the root and the cells; guests that use it cannot be moved along."""

import os_resource_classes as orc

from agent.driver import Allocations
from agent.errors import ReshapeFailed, ReshapeNeeded
from agent.model.names import ProviderUuid, printable
from agent.model.provider_tree import ProviderTree


def check_relayout(tree: ProviderTree, present: ProviderTree, root: str, allocations: Allocations | None) -> None:
    """Whether PCPU may move from where ``present`` has it to where ``tree`` has it.

    Written without a look at who uses it, the dedicated CPUs of guests would be offered a second time at the new place.

    :raises ReshapeNeeded: it moves, and ``allocations`` is None.
    :raises ReshapeFailed: somebody uses it, and nobody knows on which cells.
    """
    before, after = _dedicated(present, root), _dedicated(tree, root)
    if not before or not after or (root in before) == (root in after):
        return
    name = printable(tree.name_of(root))
    if allocations is None:
        raise ReshapeNeeded(f"PCPU of {name} moves between the root and the cells")
    users = [
        consumer for consumer, record in allocations.items()
        if any(orc.PCPU in entry["resources"] for uuid, entry in record["allocations"].items() if uuid in before)
    ]  # fmt: skip
    if users:
        what = f"PCPU of {name} would move between the root and the cells, but {len(users)} consumers use it, the first {min(users)}"
        raise ReshapeFailed(what, "set [compute] tree_layout back, or move the guests with dedicated CPUs away first", consumer=min(users))


def _dedicated(tree: ProviderTree, root: str) -> frozenset[ProviderUuid]:
    """Which of the root and its children have PCPU."""
    if not tree.exists(root):
        return frozenset()
    places = [tree.provider(root), *(tree.provider(child) for child in tree.children(root))]
    return frozenset(one.uuid for one in places if orc.PCPU in one.inventory)
