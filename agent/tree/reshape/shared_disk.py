"""Moves of DISK_GB from the root to shared storage, and back."""

from collections.abc import Sequence

import os_resource_classes as orc
import os_traits

from agent.errors import ReshapeFailed
from agent.model.names import ProviderUuid, printable
from agent.model.provider_tree import ProviderTree
from agent.tree.node_trees import NodeTrees
from agent.tree.reshape.allocation_editor import (
    AllocationEditor,
    Share,
    check_room,
    reshape_failed,
)
from agent.tree.reshape.class_moves import ClassMove
from agent.tree.reshape.context import ReshapeContext

CLASS = orc.DISK_GB


def sharing_providers(tree: ProviderTree) -> list[ProviderUuid]:
    """Return the providers that share DISK_GB with the tree, ordered by uuid."""
    return sorted(
        provider.uuid
        for provider in tree.providers()
        if CLASS in provider.inventory and os_traits.MISC_SHARES_VIA_AGGREGATE in provider.traits
    )


def becomes_shared(disk: ClassMove, tree: ProviderTree) -> bool:
    """Whether the root has DISK_GB and will have none, because a sharing provider has it."""
    return bool(disk.before and not disk.after and sharing_providers(tree))


def becomes_local(disk: ClassMove, trees: NodeTrees) -> bool:
    """Whether a root without DISK_GB gets some: allocations of guests may still be on the storage
    that shared it before.
    """
    is_known = any(provider.inventory for provider in trees.present_providers)
    return is_known and bool(disk.after and not disk.before)


def move_disk(
    disk: ClassMove, trees: NodeTrees, reshape_context: ReshapeContext, editor: AllocationEditor
) -> None:
    """Move the allocations of DISK_GB, if it is counted on another provider than before.

    What comes back to the root leaves out consumers that hold something on another host: their disk
    is on that host's storage.

    :raises ReshapeFailed: more is used than the storage has left, or than it gives one consumer, or
        there are several sharing providers.
    """
    tree, former = trees.desired, reshape_context.sharing.former
    if disk.after and not disk.before:
        for consumer, provider, amount in editor.holders(CLASS, former):
            if not editor.holds_outside(consumer, tree, former):
                editor.take(consumer, provider, CLASS, amount)
                editor.give(consumer, trees.root, CLASS, amount)
    if not becomes_shared(disk, tree):
        return
    shares = editor.holders(CLASS, disk.before)
    if not shares:
        return
    storage = _storage(trees, shares, reshape_context)
    for consumer, provider, share in shares:
        check_room(tree, storage, CLASS, consumer, share)
        editor.take(consumer, provider, CLASS, share)
        editor.give(consumer, storage, CLASS, share)


def _storage(
    trees: NodeTrees, shares: Sequence[Share], reshape_context: ReshapeContext
) -> ProviderUuid:
    """Return the sharing provider that ``shares`` of DISK_GB move to.

    :raises ReshapeFailed: there are several, or the only one has not enough left.
    """
    name, tree = printable(trees.name), trees.desired
    storages = sharing_providers(tree)
    if len(storages) > 1:
        several = " and ".join(printable(tree.name_of(uuid)) for uuid in storages)
        what = (
            f"DISK_GB of {name} would move to {several}, and it is unknown to which of them, while "
            "it is used"
        )
        raise reshape_failed(
            what,
            [consumer for consumer, *_ in shares],
            "have only one of them share with this host",
        )
    storage, amount = storages[0], sum(amount for *_, amount in shares)
    if amount > (free := reshape_context.sharing.free.get(storage, 0)):
        what = (
            f"DISK_GB of {name} would move to {printable(tree.name_of(storage))}, but {amount} are "
            f"used and {free} are free there"
        )
        raise ReshapeFailed(
            what,
            "give it more room, or take it out of the aggregate of this host",
            provider=storage,
        )
    return storage
