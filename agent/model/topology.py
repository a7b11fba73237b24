"""NUMA topology of a host: cells, CPUs, pages, siblings, distances."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PagePool:
    """Pages of one size on one cell."""

    size_kib: int
    """KiB."""
    total: int
    """Pages."""
    free: int | None = None
    """Pages; None if not known."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One NUMA node. Ids may have gaps; a cell may have memory and no CPU (GPU or HBM memory), or
    the reverse.
    """

    id: int
    cpus: frozenset[int]
    """All CPUs of the cell, offline ones included."""
    memory_mib: int
    """MiB, rounded down."""
    pages: tuple[PagePool, ...] = ()
    """The huge pages; ordinary pages are the rest of the memory."""
    distances: Mapping[int, int] = field(default_factory=dict)
    """Cell id to distance (10 is local)."""
    siblings: tuple[frozenset[int], ...] = ()
    """The online hardware threads of each core, disjoint."""
    sockets: frozenset[int] = frozenset()
    """The packages of its online CPUs."""

    @property
    def socket(self) -> int | None:
        """The package of the cell; ``None`` if its CPUs belong to several packages or it has
        none.
        """
        return next(iter(self.sockets)) if len(self.sockets) == 1 else None


@dataclass(frozen=True, slots=True)
class Topology:
    """All cells of a host, in order of their ids."""

    cells: tuple[Cell, ...]

    @property
    def memory_mib(self) -> int:
        """Memory of all cells in MiB."""
        return sum(cell.memory_mib for cell in self.cells)

    @property
    def smt(self) -> bool:
        """Whether some core shows more than one online hardware thread."""
        return any(len(core) > 1 for cell in self.cells for core in cell.siblings)
