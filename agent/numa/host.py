"""A host cell with what is used of it, and how a placed guest cell changes that."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from agent.errors import AgentError
from agent.model.topology import Topology
from agent.numa.guest import PlacedCell


class UsageError(AgentError):
    """An addition or removal that does not fit what is there: a record is wrong."""

    code = "numa.usage"


@dataclass(frozen=True, slots=True)
class Pages:
    """Pages of one size: ``size_kib`` in KiB, the rest in pages."""

    size_kib: int
    total: int
    used: int = 0
    reserved: int = 0

    @property
    def free(self) -> int:
        """Pages that a guest can have."""
        return self.total - self.used - self.reserved


@dataclass(frozen=True, slots=True)
class HostCell:
    """``shared`` and ``dedicated`` are the host CPUs offered to shared and to dedicated guest CPUs.

    ``memory_mib`` and ``memory_used_mib`` in MiB; ``shared_used`` counts shared guest CPUs. ``siblings``: the hardware
    threads of each core, of those offered. ``physnets`` and ``tunneled``: the networks local to the cell.
    """

    id: int
    shared: frozenset[int]
    dedicated: frozenset[int]
    memory_mib: int
    memory_used_mib: int = 0
    shared_used: int = 0
    pinned: frozenset[int] = frozenset()
    siblings: tuple[frozenset[int], ...] = ()
    pages: tuple[Pages, ...] = ()
    physnets: frozenset[str] = frozenset()
    tunneled: bool = False
    socket: int | None = None
    distances: Mapping[int, int] = field(default_factory=dict)

    @property
    def free_dedicated(self) -> frozenset[int]:
        """Host CPUs that can still be pinned to."""
        return self.dedicated - self.pinned

    @property
    def free_memory_mib(self) -> int:
        """MiB that are not promised."""
        return self.memory_mib - self.memory_used_mib

    @property
    def smt(self) -> bool:
        """Whether some core has more than one thread."""
        return any(len(core) > 1 for core in self.siblings)

    def free_cores(self) -> list[list[int]]:
        """The free threads of each core that has some, threads and cores in ascending order."""
        free = self.free_dedicated
        cores = [sorted(core & free) for core in self.siblings if core & free]
        lone = free.difference(*self.siblings)
        return sorted([*cores, *([cpu] for cpu in lone)])

    def with_guest(self, placed: PlacedCell) -> Self:
        """The cell with one more guest cell.

        :raises UsageError: a CPU is pinned already or is not offered; nothing is added.
        """
        cpus = placed.pinned_cpus
        if unknown := cpus - self.dedicated:
            raise UsageError(f"cell {self.id}: CPUs {sorted(unknown)} are not offered for pinning", "add them to cpu_dedicated_set", cpus=sorted(unknown))
        if taken := cpus & self.pinned:
            raise UsageError(f"cell {self.id}: CPUs {sorted(taken)} are pinned already", "two records claim the same CPUs", cpus=sorted(taken))
        return self._changed(placed, 1, self.pinned | cpus)

    def without_guest(self, placed: PlacedCell) -> Self:
        """The cell without a guest cell that was added before.

        :raises UsageError: a CPU of it is not pinned, or less is used than it would give back; nothing is removed.
        """
        if free := placed.pinned_cpus - self.pinned:
            raise UsageError(f"cell {self.id}: CPUs {sorted(free)} are not pinned", "the record was removed before", cpus=sorted(free))
        after = self._changed(placed, -1, self.pinned - placed.pinned_cpus)
        if after.memory_used_mib < 0 or after.shared_used < 0 or any(pool.used < 0 for pool in after.pages):
            raise UsageError(f"cell {self.id}: less is used than the guest cell gives back", "the record was removed before")
        return after

    def _changed(self, placed: PlacedCell, sign: int, pinned: frozenset[int]) -> Self:
        guest, size = placed.cell, placed.page_size_kib
        if size is None and self.pages:
            size = min(pool.size_kib for pool in self.pages)
        pages = tuple(
            replace(pool, used=pool.used + sign * (guest.memory_mib * 1024 // size)) if pool.size_kib == size else pool for pool in self.pages
        )
        return replace(
            self, memory_used_mib=self.memory_used_mib + sign * guest.memory_mib, shared_used=self.shared_used + sign * len(guest.shared),
            pinned=pinned, pages=pages,
        )  # fmt: skip


def host_cells(
    topology: Topology, online: frozenset[int], shared: frozenset[int], dedicated: frozenset[int], reserved_pages: Mapping[tuple[int, int], int]
) -> tuple[HostCell, ...]:
    """The cells of a host before any guest. ``reserved_pages``: (cell, size in KiB) to pages kept for the host."""
    cells = []
    for cell in topology.cells:
        usable = cell.cpus & online
        offered = usable & (shared | dedicated)
        cells.append(HostCell(
            cell.id, usable & shared, usable & dedicated, cell.memory_mib,
            siblings=tuple(core & offered for core in cell.siblings if core & offered),
            pages=tuple(Pages(pool.size_kib, pool.total, reserved=reserved_pages.get((cell.id, pool.size_kib), 0)) for pool in cell.pages),
            socket=cell.socket, distances=cell.distances,
        ))  # fmt: skip
    return tuple(cells)


def counted(cells: Iterable[HostCell], placed: Iterable[PlacedCell]) -> tuple[HostCell, ...]:
    """The cells with all of ``placed``, in any order the same.

    :raises UsageError: two of them want the same CPU, or one is on a cell that the host does not have.
    """
    by_id = {cell.id: cell for cell in cells}
    for one in placed:
        if one.host_cell not in by_id:
            raise UsageError(f"a guest is placed on cell {one.host_cell}, which the host does not have", "the host changed under the guest")
        by_id[one.host_cell] = by_id[one.host_cell].with_guest(one)
    return tuple(by_id.values())
