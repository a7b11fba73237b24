"""Moves of DISK_GB from the root to shared storage, and back."""

import os_resource_classes as orc
import os_traits

from agent.errors import ReshapeFailed
from agent.model.names import ProviderUuid, printable
from agent.model.provider_tree import ProviderTree
from agent.tree.reshape.allocation_editor import AllocationEditor, check_room, failed
from agent.tree.reshape.context import ReshapeContext
from agent.tree.reshape.places import Shift

CLASS = orc.DISK_GB


def sharing_providers(tree: ProviderTree) -> list[ProviderUuid]:
    """Return the providers that share DISK_GB with the tree, ordered by uuid."""
    return sorted(
        one.uuid
        for one in tree.providers()
        if CLASS in one.inventory and os_traits.MISC_SHARES_VIA_AGGREGATE in one.traits
    )


def becomes_shared(disk: Shift, tree: ProviderTree) -> bool:
    """Whether the root has DISK_GB and will have none, because a sharing provider has it."""
    return bool(disk.before and not disk.after and sharing_providers(tree))


def becomes_local(disk: Shift, present: ProviderTree, root: str) -> bool:
    """Whether a root without DISK_GB gets some: allocations of guests may still be on the storage
    that shared it before.
    """
    known = present.exists(root) and any(
        present.has_inventory(uuid) for uuid in present.get_provider_uuids_in_tree(root)
    )
    return known and bool(disk.after and not disk.before)


def move_disk(
    disk: Shift,
    tree: ProviderTree,
    root: str,
    reshape_context: ReshapeContext,
    editor: AllocationEditor,
) -> None:
    """Move the allocations of DISK_GB, if it is counted on another provider than before.

    What comes back to the root leaves out consumers that hold something on another host: their disk
    is on that host's storage.

    :raises ReshapeFailed: more is used than the storage has left, or than it gives one consumer, or
        there are several sharing providers.
    """
    name = printable(tree.name_of(root))
    if disk.after and not disk.before:
        for consumer, provider, amount in editor.holders(CLASS, reshape_context.sharing.former):
            if editor.holds_outside(consumer, tree, reshape_context.sharing.former):
                continue
            editor.take(consumer, provider, CLASS, amount)
            editor.give(consumer, root, CLASS, amount)
    if not becomes_shared(disk, tree):
        return
    moving, places = editor.holders(CLASS, disk.before), sharing_providers(tree)
    if not moving:
        return
    if len(places) > 1:
        several = " and ".join(printable(tree.name_of(uuid)) for uuid in places)
        what = (
            f"DISK_GB of {name} would move to {several}, and nobody knows to which of them, while "
            "it is used"
        )
        raise failed(
            what,
            [consumer for consumer, *_ in moving],
            "have only one of them share with this host",
        )
    to, amount = places[0], sum(amount for *_, amount in moving)
    if amount > (free := reshape_context.sharing.free.get(to, 0)):
        what = (
            f"DISK_GB of {name} would move to {printable(tree.name_of(to))}, but {amount} are "
            f"used and {free} are free there"
        )
        raise ReshapeFailed(
            what, "give it more room, or take it out of the aggregate of this host", provider=to
        )
    for consumer, provider, share in moving:
        check_room(tree, to, CLASS, consumer, share)
        editor.take(consumer, provider, CLASS, share)
        editor.give(consumer, to, CLASS, share)
