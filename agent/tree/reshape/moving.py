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
from agent.model.names import printable
from agent.model.provider_tree import ProviderTree
from agent.tree.reshape.allocation_editor import AllocationEditor
from agent.tree.reshape.between import cross
from agent.tree.reshape.context import ReshapeContext
from agent.tree.reshape.dedicated_cpus import becomes_dedicated, becomes_shared, swapped
from agent.tree.reshape.places import Shift, Shifts, counted_by_cells, shifts
from agent.tree.reshape.shared_disk import CLASS as DISK
from agent.tree.reshape.shared_disk import becomes_local, move_disk
from agent.tree.reshape.shared_disk import becomes_shared as disk_becomes_shared


def move_allocations(
    tree: ProviderTree,
    present: ProviderTree,
    root: str,
    reshape_context: ReshapeContext,
    allocations: Allocations | None,
) -> None:
    """Edit ``allocations`` so that they fit ``tree`` as they fit ``present``.

    :raises ReshapeNeeded: something moves, and ``allocations`` is None.
    :raises ReshapeFailed: it is unknown where a share goes, or there is no room for it.
    """
    if not present.exists(root):
        return
    found = shifts(present, tree, root)
    what, perhaps = (
        _moving(found, tree, root, reshape_context),
        _perhaps_moving(found, present, root, reshape_context),
    )
    if not what and not perhaps:
        return
    if allocations is None:
        raise ReshapeNeeded(
            f"{' and '.join((*what, *perhaps))} of {printable(tree.name_of(root))}",
            only_if_held=not what,
        )
    editor = AllocationEditor(allocations)
    after_swap = swapped(found, reshape_context, editor, present, root)
    for name, shift in after_swap.items():
        if name != DISK and (_crosses(shift, root, reshape_context) or shift != found[name]):
            cross(shift, tree, root, reshape_context, editor)
    if reshape_context.start:
        move_disk(found[DISK], tree, root, reshape_context, editor)


def _moving(
    found: Shifts, tree: ProviderTree, root: str, reshape_context: ReshapeContext
) -> list[str]:
    """Return what certainly moves, in words; empty if nothing does."""
    crossing = [
        name
        for name, shift in found.items()
        if name != DISK and _crosses(shift, root, reshape_context)
    ]
    what = [f"{', '.join(crossing)} moves between the root and its children"] if crossing else []
    if not reshape_context.start:
        # The CPU sets are those of the start, when this was done. DISK_GB in use is held on the
        # root, and shared storage may come and go.
        return what
    if becomes_dedicated(found, reshape_context):
        what.append("VCPU of pinned guests becomes PCPU")
    if becomes_shared(found, reshape_context) and reshape_context.places.pinned:
        what.append("PCPU of pinned guests becomes VCPU")
    if disk_becomes_shared(found[DISK], tree):
        what.append("DISK_GB moves to shared storage")
    return what


def _crosses(shift: Shift, root: str, reshape_context: ReshapeContext) -> bool:
    """Whether the class crosses between root and children by the operator's will: to the children,
    between cells, or back to the root by option. All else is moved by drivers.
    """
    wanted = (
        root in shift.before
        or counted_by_cells(shift.resource_class)
        or shift.resource_class in reshape_context.policy.on_root
    )
    return wanted and shift.crosses(root)


def _perhaps_moving(
    found: Shifts, present: ProviderTree, root: str, reshape_context: ReshapeContext
) -> list[str]:
    """Return what moves only if a consumer holds it, in words: worth a request at a start. Later,
    what is used is held where it is.
    """
    perhaps: list[str] = []
    # A root that gets its first DISK_GB mostly has a new disk; only the consumers show whether it
    # was shared before.
    if reshape_context.start and becomes_local(found[DISK], present, root):
        perhaps.append("DISK_GB may come back from shared storage")
    # PCPU may go because its CPUs are gone, and not because a set was removed.
    if (
        reshape_context.start
        and becomes_shared(found, reshape_context)
        and not reshape_context.places.pinned
    ):
        perhaps.append("PCPU may become VCPU")
    return perhaps
