"""NUMA topology of a host: cells, CPUs, pages, siblings, distances; and CPU lists in the format of
operators and the kernel: ``0-7,^3,10``.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Self


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
    shared_by: tuple[int, ...] = ()
    """The ids of the NUMA nodes that share CPUs, so that the host has one cell, 0, instead of them;
    empty where every NUMA node is a cell.
    """

    def cell_of(self, numa_node: int) -> int:
        """Return the id of the cell that the NUMA node is counted as."""
        return 0 if self.shared_by else numa_node

    def with_disjoint_cells(self) -> Self:
        """Return the topology with each CPU in one cell: where NUMA nodes share CPUs, as emulated
        ones do (``numa=fake``), all of the host is cell 0.
        """
        cells = self.cells
        if sum(len(cell.cpus) for cell in cells) == len(_union(cell.cpus for cell in cells)):
            return self
        whole = Cell(
            0,
            _union(cell.cpus for cell in cells),
            sum(cell.memory_mib for cell in cells),
            _sum_of_pools([pool for cell in cells for pool in cell.pages]),
            {0: 10},
            _joined(core for cell in cells for core in cell.siblings),
            _union(cell.sockets for cell in cells),
        )
        return type(self)((whole,), tuple(cell.id for cell in cells))

    @property
    def cpus_without_memory(self) -> frozenset[int]:
        """The CPUs of cells without memory. No guest can be pinned to them, because a guest cell
        has its CPUs and its memory on one cell.
        """
        return _union(cell.cpus for cell in self.cells if not cell.memory_mib)

    @property
    def memory_mib(self) -> int:
        """Memory of all cells in MiB."""
        return sum(cell.memory_mib for cell in self.cells)

    @property
    def smt(self) -> bool:
        """Whether some core shows more than one online hardware thread."""
        return any(len(core) > 1 for cell in self.cells for core in cell.siblings)


def _union(sets: Iterable[frozenset[int]]) -> frozenset[int]:
    return frozenset(chain.from_iterable(sets))


def _sum_of_pools(pools: Sequence[PagePool]) -> tuple[PagePool, ...]:
    """Return one pool for each size. How much is free is known if it is known of all of them."""
    totals, free = Counter[int](), Counter[int]()
    for pool in pools:
        totals[pool.size_kib] += pool.total
        free[pool.size_kib] += pool.free or 0
    unknown = {pool.size_kib for pool in pools if pool.free is None}
    return tuple(
        PagePool(size, totals[size], None if size in unknown else free[size])
        for size in sorted(totals)
    )


def _joined(cores: Iterable[frozenset[int]]) -> tuple[frozenset[int], ...]:
    """Return disjoint cores, ordered by their lowest CPU: those that share a CPU are one, because
    each NUMA node may list a part of a core.
    """
    disjoint: list[frozenset[int]] = []
    for core in cores:
        parts = [other for other in disjoint if other & core]
        disjoint = [other for other in disjoint if other not in parts]
        disjoint.append(core.union(*parts))
    return tuple(sorted(disjoint, key=min))


def group_cores(
    cpus: frozenset[int], siblings_of: Callable[[int], frozenset[int]]
) -> tuple[frozenset[int], ...]:
    """Return the cores of ``cpus``, ordered by their lowest CPU. ``siblings_of``: returns the
    hardware threads of the core of a CPU, with the CPU; it is asked once a core.

    :raises ValueError: two cores overlap, or a CPU is not among its own siblings.
    """
    cores: list[frozenset[int]] = []
    seen: set[int] = set()
    for cpu in sorted(cpus):
        if cpu in seen:
            continue
        core = siblings_of(cpu) & cpus
        if cpu not in core or core & seen:
            raise ValueError(f"the siblings of CPU {cpu} contradict those of another")
        seen |= core
        cores.append(core)
    return tuple(cores)


def parse_cpu_list(text: str) -> frozenset[int]:
    """Parse a CPU list: items ``N``, ``A-B``, ``^N``, ``^A-B``, separated by commas; exclusions
    apply to the whole list.

    Blanks and empty items are ignored.

    :raises ValueError: an item is no number or range or is above 1000000, or a text that is not
        blank names no CPU.
    """
    included: set[int] = set()
    excluded: set[int] = set()
    items = [item.strip() for item in text.split(",") if item.strip()]
    for item in items:
        target, span = (excluded, item[1:].strip()) if item.startswith("^") else (included, item)
        first, dash, last = (part.strip() for part in span.partition("-"))
        if not (first.isascii() and first.isdigit()) or (
            dash and not (last.isascii() and last.isdigit())
        ):
            raise ValueError(f"{item!r} is neither a CPU number nor a range A-B")
        low, high = int(first), int(last or first)
        if low > high:
            raise ValueError(f"{item!r} runs backwards")
        if high > 1_000_000:
            raise ValueError(f"{item!r} names a CPU above 1000000")
        target.update(range(low, high + 1))
    cpus = frozenset(included - excluded)
    if text.strip() and not cpus:
        raise ValueError(f"{text!r} leaves no CPU")
    return cpus


def format_cpu_list(cpus: frozenset[int] | set[int]) -> str:
    """Return the shortest list of ranges: ``0-3,8``."""
    spans: list[list[int]] = []
    for cpu in sorted(cpus):
        if spans and cpu == spans[-1][1] + 1:
            spans[-1][1] = cpu
        else:
            spans.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
