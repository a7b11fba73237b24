"""The NUMA topology of a host: cells, CPUs, pages, siblings, distances."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PagePool:
    """Pages of one size on one cell. ``size_kib`` in KiB; ``total`` and ``free`` in pages, ``free``
    if known.
    """

    size_kib: int
    total: int
    free: int | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """One NUMA node. Ids may have gaps; a cell may have memory and no CPU (GPU or HBM memory), or
    the reverse.

    ``cpus``: all CPUs of the cell, offline ones too. ``memory_mib``: MiB, rounded down.
    ``distances``: cell id to distance (10 is local). ``pages``: the huge ones; ordinary pages are
    the rest of the memory. ``siblings``: the online hardware threads of each core, disjoint.
    ``sockets``: the packages its online CPUs belong to.
    """

    id: int
    cpus: frozenset[int]
    memory_mib: int
    pages: tuple[PagePool, ...] = ()
    distances: Mapping[int, int] = field(default_factory=dict)
    siblings: tuple[frozenset[int], ...] = ()
    sockets: frozenset[int] = frozenset()

    @property
    def socket(self) -> int | None:
        """The package of the cell, ``None`` if its CPUs belong to several or it has none."""
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
