"""The cells of a host: as they are before any guest, and with all guests counted."""

from collections.abc import Iterable

from agent.model.guest import PlacedCell
from agent.model.topology import Cell, Topology
from agent.numa.host import CellUsageError, HostCell, Pages
from agent.numa.network_affinity import NetworkAffinity
from agent.numa.page_pools import page_pools
from agent.numa.reserved_pages import ReservedPages


def host_cells(
    topology: Topology,
    online: frozenset[int],
    sleeping: frozenset[int],
    shared: frozenset[int] | None,
    dedicated: frozenset[int] | None,
    reserved_pages: ReservedPages,
    networks: NetworkAffinity,
) -> tuple[HostCell, ...]:
    """The cells before any guest. ``shared`` and ``dedicated``: the host CPUs that the operator offers to each kind; ``sleeping``: dedicated
    ones that are woken up for whoever gets them.

    A kind that is not configured gets none, or both get all if neither is. What is used is never read from the host,
    because only the guests' records tell what is promised.
    """
    everything = frozenset[int]().union(*(cell.cpus for cell in topology.cells)) if shared is None and dedicated is None else frozenset[int]()
    for_shared, for_dedicated = (everything if kind is None else kind for kind in (shared, dedicated))

    def host_cell(cell: Cell) -> HostCell:
        for_pins = for_dedicated & (online | sleeping)
        offered = cell.cpus & (online & for_shared | for_pins)
        return HostCell(
            cell.id,
            cell.cpus & online & for_shared,
            cell.cpus & for_pins,
            cell.memory_mib,
            siblings=tuple(core & offered for core in cell.siblings if core & offered),
            pages=tuple(Pages(pool.size_kib, pool.total, reserved=reserved_pages.get((cell.id, pool.size_kib), 0)) for pool in page_pools(cell)),
            physnets=frozenset(name for name, cells in networks.physnets.items() if cell.id in cells),
            tunneled=cell.id in networks.tunneled,
            socket=cell.socket,
            distances=cell.distances,
            offline=cell.cpus & for_dedicated - for_pins,
        )

    return tuple(host_cell(cell) for cell in topology.cells)


def counted(cells: Iterable[HostCell], placed: Iterable[PlacedCell]) -> tuple[HostCell, ...]:
    """The cells with all of ``placed``, in any order the same.

    :raises CellUsageError: two of them want the same CPU, or one is on a cell that the host does not have.
    """
    by_id = {cell.id: cell for cell in cells}
    for one in placed:
        if one.host_cell not in by_id:
            raise CellUsageError(f"a guest is placed on cell {one.host_cell}, which the host does not have", "the host changed under the guest")
        by_id[one.host_cell] = by_id[one.host_cell].with_guest(one)
    return tuple(by_id.values())
