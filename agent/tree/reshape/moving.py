"""Which allocations move when a node's tree changes, and where to. Pure but for the allocations,
which are edited.

- VGPU and contexts of encryption, between the root and its children;
- VCPU of pinned guests, which becomes PCPU, and the way back;
- VCPU, PCPU, MEMORY_MB and page classes, between the root and the cells;
- DISK_GB, between the root and shared storage.

Allocations of PCI devices do not move here: they are corrected by the allocation repair.
"""

from agent.driver.interface import Allocations
from agent.errors import ReshapeNeeded
from agent.model.names import ProviderUuid, printable
from agent.tree.node_trees import NodeTrees
from agent.tree.reshape.allocation_editor import AllocationEditor
from agent.tree.reshape.between import move_between_root_and_children
from agent.tree.reshape.class_moves import ClassMove, ClassMoves, class_moves, counted_by_cells
from agent.tree.reshape.context import ReshapeContext
from agent.tree.reshape.dedicated_cpus import becomes_dedicated, becomes_shared, swap_cpu_classes
from agent.tree.reshape.shared_disk import CLASS as DISK
from agent.tree.reshape.shared_disk import becomes_local, move_disk
from agent.tree.reshape.shared_disk import becomes_shared as disk_becomes_shared


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
        if name != DISK and (_crosses(move, trees.root, reshape_context) or move != moves[name]):
            move_between_root_and_children(move, trees, reshape_context, editor)
    if reshape_context.start:
        move_disk(moves[DISK], trees, reshape_context, editor)


def _certain_moves(
    moves: ClassMoves, trees: NodeTrees, reshape_context: ReshapeContext
) -> list[str]:
    """Return what certainly moves, in words; empty if nothing does."""
    crossing = [
        name
        for name, move in moves.items()
        if name != DISK and _crosses(move, trees.root, reshape_context)
    ]
    certain = [f"{', '.join(crossing)} moves between the root and its children"] if crossing else []
    if not reshape_context.start:
        # The CPU sets are those of the start, when this was done. DISK_GB in use is held on the
        # root, and shared storage may come and go.
        return certain
    if becomes_dedicated(moves, reshape_context):
        certain.append("VCPU of pinned guests becomes PCPU")
    if becomes_shared(moves, reshape_context) and reshape_context.places.pinned:
        certain.append("PCPU of pinned guests becomes VCPU")
    if disk_becomes_shared(moves[DISK], trees.desired):
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
    possible: list[str] = []
    # A root that gets its first DISK_GB mostly has a new disk; only the consumers show whether it
    # was shared before.
    if reshape_context.start and becomes_local(moves[DISK], trees):
        possible.append("DISK_GB may come back from shared storage")
    # PCPU may go because its CPUs are gone, and not because a set was removed.
    if (
        reshape_context.start
        and becomes_shared(moves, reshape_context)
        and not reshape_context.places.pinned
    ):
        possible.append("PCPU may become VCPU")
    return possible
