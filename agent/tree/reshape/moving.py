"""Which allocations move when a node's tree changes, and where to. Pure but for the allocations,
which are edited.

- VGPU and contexts of encryption, between the root and its children;
- VCPU of pinned guests, which becomes PCPU, and the way back;
- VCPU, PCPU, MEMORY_MB and page classes, between the root and the cells, and from cells that are
  gone to those where the guests are now;
- DISK_GB, between the root and shared storage.

Allocations of PCI devices do not move here: they are corrected by the allocation repair.
"""

from collections.abc import Sequence

import os_resource_classes as orc
import os_traits

from agent.driver.interface import Allocations
from agent.errors import ReshapeFailed, ReshapeNeeded
from agent.model.facts import Section
from agent.model.names import ProviderUuid, printable
from agent.model.provider_tree import ProviderTree
from agent.tree.node_trees import NodeTrees
from agent.tree.reshape.allocation_editor import (
    AllocationEditor,
    ReshapeContext,
    Share,
    check_room,
    reshape_failed,
)
from agent.tree.reshape.between import (
    ClassMove,
    ClassMoves,
    becomes_dedicated,
    becomes_shared,
    class_moves,
    counted_by_cells,
    follow_cells,
    may_leave_cells,
    move_between_root_and_children,
    swap_cpu_classes,
)

MOVED_BY: frozenset[Section] = frozenset({"cpu", "memory", "disk", "numa", "mdev", "encryption"})
"""The sections of the facts that tell where classes are counted."""


def sharing_providers(tree: ProviderTree) -> list[ProviderUuid]:
    """Return the providers that share DISK_GB with the tree, ordered by uuid."""
    return sorted(
        provider.uuid
        for provider in tree.providers()
        if orc.DISK_GB in provider.inventory
        and os_traits.MISC_SHARES_VIA_AGGREGATE in provider.traits
    )


def disk_becomes_shared(disk: ClassMove, tree: ProviderTree) -> bool:
    """Whether the root has DISK_GB and will have none, because a sharing provider has it."""
    return bool(disk.before and not disk.after and sharing_providers(tree))


def disk_becomes_local(disk: ClassMove, trees: NodeTrees) -> bool:
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
        for consumer, provider, amount in editor.holders(orc.DISK_GB, former):
            if not editor.holds_outside(consumer, tree, former):
                editor.take(consumer, provider, orc.DISK_GB, amount)
                editor.give(consumer, trees.root, orc.DISK_GB, amount)
    if not disk_becomes_shared(disk, tree):
        return
    shares = editor.holders(orc.DISK_GB, disk.before)
    if not shares:
        return
    storage = _storage(trees, shares, reshape_context)
    for consumer, provider, share in shares:
        check_room(tree, storage, orc.DISK_GB, consumer, share)
        editor.take(consumer, provider, orc.DISK_GB, share)
        editor.give(consumer, storage, orc.DISK_GB, share)


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
        raise reshape_failed(
            (
                f"DISK_GB of {name} would move to {several}, and it is unknown to which of them, "
                "while it is used"
            ),
            [consumer for consumer, *_ in shares],
            "have only one of them share with this host",
        )
    storage, amount = storages[0], sum(amount for *_, amount in shares)
    if amount > (free := reshape_context.sharing.free.get(storage, 0)):
        raise ReshapeFailed(
            (
                f"DISK_GB of {name} would move to {printable(tree.name_of(storage))}, but {amount} "
                f"are used and {free} are free there"
            ),
            "give it more room, or take it out of the aggregate of this host",
            provider=storage,
        )
    return storage


def move_allocations(
    trees: NodeTrees, reshape_context: ReshapeContext, allocations: Allocations | None
) -> None:
    """Edit ``allocations``, which fit the tree in Placement, so that they fit the desired tree.

    :raises ReshapeNeeded: something moves, and ``allocations`` is None.
    :raises ReshapeFailed: it is unknown where a share goes, or there is no room for it.
    """
    if trees.present_root is None:
        return
    moves = class_moves(trees)
    certain = _certain_moves(moves, trees, reshape_context)
    possible = _possible_moves(moves, trees, reshape_context)
    if not certain and not possible:
        return
    if allocations is None:
        raise ReshapeNeeded(
            f"{' and '.join((*certain, *possible))} of {printable(trees.name)}",
            only_if_held=not certain,
        )
    editor = AllocationEditor(allocations)
    remaining = swap_cpu_classes(moves, reshape_context, editor, trees.present, trees.root)
    for name, move in remaining.items():
        if name != orc.DISK_GB and (
            _crosses(move, trees.root, reshape_context) or move != moves[name]
        ):
            move_between_root_and_children(move, trees, reshape_context, editor)
        elif may_leave_cells(move, trees.root, reshape_context):
            follow_cells(move, trees, reshape_context, editor)
    if reshape_context.optional_moves:
        move_disk(moves[orc.DISK_GB], trees, reshape_context, editor)


def _certain_moves(
    moves: ClassMoves, trees: NodeTrees, reshape_context: ReshapeContext
) -> list[str]:
    """Return what certainly moves, in words; empty if nothing does."""
    crossing = [
        name
        for name, move in moves.items()
        if name != orc.DISK_GB and _crosses(move, trees.root, reshape_context)
    ]
    certain = [f"{', '.join(crossing)} moves between the root and its children"] if crossing else []
    if not reshape_context.optional_moves:
        # The CPU sets are those of the start, when this was done. DISK_GB in use is held on the
        # root, and shared storage may come and go.
        return certain
    if becomes_dedicated(moves, reshape_context):
        certain.append("VCPU of pinned guests becomes PCPU")
    if becomes_shared(moves, reshape_context) and reshape_context.places.pinned:
        certain.append("PCPU of pinned guests becomes VCPU")
    if disk_becomes_shared(moves[orc.DISK_GB], trees.desired):
        certain.append("DISK_GB moves to shared storage")
    return certain


def _crosses(move: ClassMove, root: ProviderUuid, reshape_context: ReshapeContext) -> bool:
    """Whether the class crosses between root and children by the operator's will: to the children,
    between cells, or back to the root by option. All else is moved by drivers.
    """
    is_configured = (
        root in move.before
        or counted_by_cells(move.resource_class)
        or move.resource_class in reshape_context.policy.on_root
    )
    return is_configured and move.crosses(root)


def _possible_moves(
    moves: ClassMoves, trees: NodeTrees, reshape_context: ReshapeContext
) -> list[str]:
    """Return what moves only if a consumer holds it, in words: worth a request at a start. Later,
    what is used is held where it is.
    """
    left = [
        name for name, move in moves.items() if may_leave_cells(move, trees.root, reshape_context)
    ]
    possible = [f"{', '.join(left)} may move from cells that are gone"] if left else []
    # A root that gets its first DISK_GB mostly has a new disk; only the consumers show whether it
    # was shared before.
    if reshape_context.optional_moves and disk_becomes_local(moves[orc.DISK_GB], trees):
        possible.append("DISK_GB may come back from shared storage")
    # PCPU may go because its CPUs are gone, and not because a set was removed.
    if (
        reshape_context.optional_moves
        and becomes_shared(moves, reshape_context)
        and not reshape_context.places.pinned
    ):
        possible.append("PCPU may become VCPU")
    return possible
