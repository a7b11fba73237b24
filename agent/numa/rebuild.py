"""A rebuild in place with another image: the guest stays where it is, so the new request has to mean the cells that it has."""

from collections.abc import Sequence
from dataclasses import replace

from agent.errors import AgentError
from agent.model.guest import Guest, PlacedCell
from agent.model.names import number_of
from agent.numa.host import HostCell
from agent.numa.pair import Misfit, pair

SAME = "use an image that asks for the same topology"


class RebuildRefused(AgentError):
    """The new image asks for other cells than the guest has."""

    code = "numa.rebuild"


def check_rebuild(host: Sequence[HostCell], placed: Sequence[PlacedCell], guest: Guest) -> None:
    """Fit ``guest``, the new request, into exactly what the old one has on the host: its cells ``placed``, as if all else were taken.

    It needs no room beside that, because the old guest is gone when the new one starts, and its pins stay.

    :raises RebuildRefused: it does not fit, or has other guest cells or pages.
    """
    cells = {cell.id: cell for cell in host}
    if len(guest.cells) != len(placed):
        raise RebuildRefused(f"the rebuilt guest would have {number_of(len(guest.cells), 'cell')}, the old one has {len(placed)}", SAME)
    for index, old in enumerate(placed):
        if old.host_cell not in cells:
            raise RebuildRefused(f"the host does not have cell {old.host_cell} any more, on which the guest is", "move it to another host")
        new = pair(guest, index, _share(cells[old.host_cell], old), None)
        if isinstance(new, Misfit):
            raise RebuildRefused(f"the rebuilt guest does not fit where the old one is: cell {old.host_cell}: {new}", "resize or move it instead")
        if (new.cell, new.page_size_kib) != (old.cell, old.page_size_kib):
            raise RebuildRefused("the rebuilt guest would have other cells than the old one", SAME)


def _share(cell: HostCell, own: PlacedCell) -> HostCell:
    """The host cell with nothing free but what a guest cell has of it."""
    # One whose pins are not counted, because they contradict others', has nothing to give back.
    free = cell.without_guest(own) if own.pinned_cpus <= cell.pinned else cell
    size = cell.smallest_page_kib if own.page_size_kib is None else own.page_size_kib
    pages = tuple(pool if pool.size_kib == size else replace(pool, used=pool.total - pool.reserved) for pool in free.pages)
    return replace(free, dedicated=own.pinned_cpus, pinned=frozenset(), offline=frozenset(), pages=pages)
