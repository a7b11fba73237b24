"""The pages of a cell, the ordinary ones among them."""

from agent.model.topology import Cell, PagePool

ORDINARY_KIB = 4


def page_pools(cell: Cell) -> tuple[PagePool, ...]:
    """The cell's pools of huge pages, and one of ordinary pages: what is left of the memory.

    Drivers report only huge pages, because a host does not tell how large the others are. 4 KiB is said of all hosts:
    the size makes a difference only to a guest that asks for just this number, because MiB are multiples of any.
    """
    if any(pool.size_kib <= ORDINARY_KIB for pool in cell.pages):
        return cell.pages
    huge = sum(pool.size_kib * pool.total for pool in cell.pages)
    return (PagePool(ORDINARY_KIB, max(cell.memory_mib * 1024 - huge, 0) // ORDINARY_KIB), *cell.pages)
