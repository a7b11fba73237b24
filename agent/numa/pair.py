"""Pair test: one guest cell on one host cell, with the CPUs that it is pinned to there.

Five rules, in this order:

0. The guest cell takes of the host cell exactly what the scheduler allocated to the guest there,
   if there is an allocation.
1. The memory is free, in pages of a size that the guest accepts.
2. The host cell has as many CPUs of each kind, used or not: a guest may not overcommit against
   itself.
3. As many dedicated CPUs as needed are free, and the thread policy can be kept.
4. With the shared CPUs and the memory, the host cell stays within the ratios. Equal to a limit is
   a fit.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent.model.instance import Guest, GuestCell, PageRequest, PlacedCell, ThreadPolicy
from agent.numa.host import HostCell, Pages

Core = Sequence[int]
Shares = list[tuple[Core, int]]
"""Cores, and how many threads each gives."""


@dataclass(frozen=True, slots=True)
class Pins:
    """The host CPUs of a guest cell."""

    cpus: tuple[int, ...]
    """For the guest's CPUs, in their order."""
    reserved: frozenset[int] = frozenset()
    """For the emulator."""


def can_pin(
    cores: Iterable[int], need: int, reserve: int, policy: ThreadPolicy | None, *, smt: bool
) -> bool:
    """Return whether ``need`` CPUs can be had, and ``reserve`` more for the emulator.

    ``cores``: the number of free threads of each core. ``smt``: whether the cell has cores with
    more than one thread, free or not.
    """
    threads = list(cores)
    if sum(threads) < need + reserve:
        return False
    if policy == "isolate":
        # Without SMT every CPU is a core; with SMT, Placement has refused the host already.
        return not (need and smt)
    # Siblings can be given from every core that has two free threads or more.
    return policy != "require" or need <= sum(count for count in threads if count > 1)


def pin(cores: Sequence[Core], need: int, reserve: int, policy: ThreadPolicy | None) -> Pins:
    """Choose ``need`` CPUs of the free threads ``cores``, and ``reserve`` more for the emulator,
    where :func:`can_pin` says that this is possible.
    """
    shares = _shares(cores, need, policy)
    cpus = tuple(cpu for core, threads in shares for cpu in core[:threads])
    return Pins(cpus, frozenset(_rests(cores, cpus)[:reserve]) if reserve else frozenset())


def _shares(cores: Sequence[Core], need: int, policy: ThreadPolicy | None) -> Shares:
    if not need:
        return []
    if policy == "isolate":
        return _in_order(cores, need)
    if policy == "require":
        return _siblings([core for core in cores if len(core) > 1], need)
    return _group_cores(cores, need, 1) or _in_order(cores, need)


def _siblings(cores: Sequence[Core], need: int) -> Shares:
    """Return shares of two or more threads of each core, as far as ``need`` can be divided so."""
    shares = _group_cores(cores, need, 2)
    if shares is None:
        shares = _in_order(sorted(cores, key=len, reverse=True), need)
    return sorted(_without_lone_thread(shares), key=lambda share: share[0][0])


def _group_cores(cores: Sequence[Core], need: int, least: int) -> Shares | None:
    """Return shares with the same number of threads of each core, as many as possible; None if not
    even ``least`` threads are possible.
    """
    widest = min(max((len(core) for core in cores), default=0), need)
    for threads in range(max(widest, least), least - 1, -1):
        if shares := _evenly(cores, need, threads):
            return shares
    return None


def _evenly(cores: Iterable[Core], need: int, threads: int) -> Shares | None:
    """Return shares of ``threads`` of each core, with the rest on the last core; cores with exactly
    so many threads first. None if there are too few cores.
    """
    fitting = sorted(
        (core for core in cores if len(core) >= threads), key=lambda core: len(core) != threads
    )
    if threads * len(fitting) < need:
        return None
    return _in_order(
        [
            core[:threads]
            for core in sorted(fitting[: -(-need // threads)], key=lambda core: core[0])
        ],
        need,
    )


def _in_order(cores: Iterable[Core], need: int) -> Shares:
    """Return shares of all threads, core after core."""
    shares: Shares = []
    for core in cores:
        if need:
            shares.append((core, min(len(core), need)))
            need -= shares[-1][1]
    return shares


def _without_lone_thread(shares: Shares) -> Shares:
    """Return the shares with two threads of the last core instead of one, if the first core can
    spare one.
    """
    (first, most), (last, least) = shares[0], shares[-1]
    if least > 1 or most < 3 or len(last) < 2:
        return shares
    return [(first, most - 1), *shares[1:-1], (last, 2)]


def _rests(cores: Iterable[Core], taken: Iterable[int]) -> list[int]:
    """Return the threads that are not taken, those of the cores with the fewest of them first."""
    gone = set(taken)
    rests = sorted(([cpu for cpu in core if cpu not in gone] for core in cores), key=len)
    return [cpu for rest in rests for cpu in rest]


@dataclass(frozen=True, slots=True)
class CellLimits:
    """How far a cell may be overcommitted."""

    cpu_ratio: float
    """Ratio of shared guest CPUs to host CPUs."""
    memory_ratio: float
    """Ratio of promised memory to the cell's memory."""


@dataclass(frozen=True, slots=True)
class Allocated:
    """What the scheduler allocated to a guest of one host cell. A field is None if cells do not
    count that class, or if it was not allocated of cells.
    """

    dedicated: int | None = None
    """CPUs."""
    shared: int | None = None
    """CPUs."""
    memory_mib: int | None = None
    """MiB."""
    pages: Mapping[int, int] | None = None
    """Page size in KiB to MiB."""

    def __bool__(self) -> bool:
        return any((self.dedicated, self.shared, self.memory_mib, self.pages))


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a guest cell does not fit a host cell: the first rule that fails."""

    rule: int
    """The number of the rule."""
    what: str
    """What is missing, in words."""
    needed: object
    available: object

    def __str__(self) -> str:
        return (
            f"{self.what}: {self.needed} needed, {self.available} "
            f"{'available' if self.rule else 'allocated'}"
        )


Misfits = Mapping[tuple[int, int], Misfit]
"""(guest cell, id of the host cell) to the first rule that fails."""


class Pairs:
    """The tests of each guest cell on each host cell. Equal guest cells are tested once, and CPUs
    are chosen only for the pairs that are placed.
    """

    def __init__(
        self,
        guest: Guest,
        host: Sequence[HostCell],
        limits: CellLimits | None,
        allocated: Mapping[int, Allocated],
    ) -> None:
        self._guest, self._host, self._allocated = guest, host, allocated
        first: dict[tuple[int, int, int, int], int] = {}
        self._rows = [
            first.setdefault(
                (
                    len(cell.shared),
                    len(cell.dedicated),
                    cell.memory_mib,
                    guest.emulator_cpus(row),
                ),
                row,
            )
            for row, cell in enumerate(guest.cells)
        ]
        self._lines = {
            row: [misfit(guest, row, cell, limits, allocated.get(cell.id)) for cell in host]
            for row in first.values()
        }
        fits = {row: [found is None for found in line] for row, line in self._lines.items()}
        self.fits = [fits[row] for row in self._rows]

    def placed(self, row: int, column: int) -> PlacedCell:
        """Return the guest cell placed on the host cell, which it has to fit."""
        cell = self._host[column]
        return place_cell(self._guest, row, cell, self._allocated.get(cell.id))

    def misfits(self) -> Misfits:
        """Return all pairs that do not fit."""
        misfits = {
            (row, cell.id): found
            for row, first in enumerate(self._rows)
            for cell, found in zip(self._host, self._lines[first], strict=True)
            if found is not None
        }
        if not any(self._allocated.values()):
            return misfits
        # Left out: the scheduler allocated nothing of the other cells, which explains nothing.
        return {
            (row, cell): found
            for (row, cell), found in misfits.items()
            if found.rule or self._allocated.get(cell)
        } or misfits


def pair(
    guest: Guest, index: int, host: HostCell, limits: CellLimits | None
) -> PlacedCell | Misfit:
    """Return guest cell ``index`` placed on ``host``, or why it does not fit. Changes neither.

    ``limits`` None: no limit on overcommitment.
    """
    return misfit(guest, index, host, limits) or place_cell(guest, index, host)


def misfit(
    guest: Guest,
    index: int,
    host: HostCell,
    limits: CellLimits | None,
    allocated: Allocated | None = None,
) -> Misfit | None:
    """Return why guest cell ``index`` does not fit ``host``; None if it does.

    ``limits`` None: no limit on overcommitment. ``allocated`` None: the scheduler's allocation
    names no cells.
    """
    cell, emulator = guest.cells[index], guest.emulator_cpus(index)
    if allocated is not None and (found := _as_allocated(cell, host, emulator, allocated)):
        return found
    size = _page_size(guest, cell, host, allocated)
    if isinstance(size, Misfit):
        return size
    return (
        _cpus(cell, host, emulator)
        or _free_cpus(guest, cell, host, emulator)
        or (_within_limits(cell, host, size, limits) if limits else None)
    )


def place_cell(
    guest: Guest, index: int, host: HostCell, allocated: Allocated | None = None
) -> PlacedCell:
    """Return guest cell ``index`` placed on ``host``, which it has to fit. Changes neither."""
    cell, emulator = guest.cells[index], guest.emulator_cpus(index)
    size = _page_size(guest, cell, host, allocated)
    assert not isinstance(size, Misfit)
    dedicated = sorted(cell.dedicated)
    if not dedicated and not emulator:
        return PlacedCell(cell, host.id, size)
    pins = pin(host.free_cores(), len(dedicated), emulator, guest.thread_policy)
    return PlacedCell(
        cell, host.id, size, dict(zip(dedicated, pins.cpus, strict=True)), pins.reserved
    )


def _as_allocated(
    cell: GuestCell, host: HostCell, emulator: int, allocated: Allocated
) -> Misfit | None:
    dedicated, shared = len(cell.dedicated) + emulator, len(cell.shared)
    if host.dedicated & host.shared:
        # Where a CPU may serve both kinds, all CPUs are counted as shared ones.
        dedicated, shared = 0, shared + dedicated
    counts = (
        ("PCPU", dedicated, allocated.dedicated),
        ("VCPU", shared, allocated.shared),
        ("MEMORY_MB", cell.memory_mib, allocated.memory_mib),
    )
    for name, needed, there in counts:
        if there is not None and needed != there:
            return Misfit(0, name, needed, there)
    return None


def _page_size(
    guest: Guest, cell: GuestCell, host: HostCell, allocated: Allocated | None
) -> int | Misfit | None:
    """Return the page size to use, one that was ``allocated`` if any was; None if the host reports
    nothing about pages.
    """
    memory = cell.memory_mib
    counted = None if allocated is None else allocated.pages
    pools: Sequence[Pages] = ()
    if guest.pages is not None or counted is not None:
        pools = _candidates(guest.pages or "small", host.pages)
    if counted is not None:
        admitted = [pool for pool in pools if counted == _counted_pages(pool, memory, host)]
        if pools and not admitted:
            return Misfit(
                0,
                f"MiB in pages of {' or '.join(str(pool.size_kib) for pool in pools)} KiB",
                memory,
                dict(counted),
            )
        pools = admitted
    if guest.pages is not None:
        for pool in pools:
            if memory * 1024 % pool.size_kib == 0 and memory * 1024 <= pool.free * pool.size_kib:
                return pool.size_kib
        return Misfit(
            1,
            f"MiB in free pages ({guest.pages})",
            memory,
            {pool.size_kib: pool.free for pool in host.pages},
        )
    if host.pages:
        pool = min(host.pages, key=lambda pool: pool.size_kib)
        # Guests that are not pinned may overcommit memory, but none may be larger than the cell.
        there = pool.free if guest.pinned else pool.total
        if memory * 1024 % pool.size_kib or memory * 1024 > there * pool.size_kib:
            return Misfit(
                1, f"MiB in pages of {pool.size_kib} KiB", memory, there * pool.size_kib // 1024
            )
        return pool.size_kib
    available = host.free_memory_mib if guest.pinned else host.memory_mib
    return Misfit(1, "MiB", memory, available) if memory > available else None


def _counted_pages(pool: Pages, memory: int, host: HostCell) -> Mapping[int, int]:
    """Return what the scheduler allocates for this memory in these pages."""
    huge = pool in host.huge_pages and pool.size_kib % 1024 == 0
    return {pool.size_kib: memory} if huge else {}


def _candidates(request: PageRequest, pools: tuple[Pages, ...]) -> list[Pages]:
    """Return the pools that the request admits, in the order to try them."""
    ordered = sorted(pools, key=lambda pool: pool.size_kib)
    if request == "small":
        return ordered[:1]
    if request == "large":
        return ordered[:0:-1]
    if request == "any":
        return ordered[::-1]
    return [pool for pool in ordered if pool.size_kib == request]


def _cpus(cell: GuestCell, host: HostCell, emulator: int) -> Misfit | None:
    if len(cell.dedicated) + emulator > len(host.dedicated):
        return Misfit(2, "dedicated CPUs", len(cell.dedicated) + emulator, len(host.dedicated))
    if len(cell.shared) > len(host.shared):
        return Misfit(2, "shared CPUs", len(cell.shared), len(host.shared))
    return None


def _free_cpus(guest: Guest, cell: GuestCell, host: HostCell, emulator: int) -> Misfit | None:
    needed, policy = len(cell.dedicated) + emulator, guest.thread_policy
    if not needed:
        return None
    free = len(host.free_dedicated)
    if needed > free:
        return Misfit(3, "free dedicated CPUs", needed, free)
    # Only these two policies are about cores; for the others every free CPU will do.
    if policy not in ("require", "isolate"):
        return None
    cores = host.free_cores()
    if can_pin(map(len, cores), len(cell.dedicated), emulator, policy, smt=host.smt):
        return None
    if policy == "isolate":
        return Misfit(3, "cores without SMT for thread policy isolate", needed, 0)
    return Misfit(3, f"free cores for thread policy {policy}", needed, cores)


def _within_limits(
    cell: GuestCell, host: HostCell, size: int | None, limits: CellLimits
) -> Misfit | None:
    if not cell.shared:
        return None
    cpus, room = host.shared_used + len(cell.shared), len(host.shared) * limits.cpu_ratio
    if cpus > room:
        return Misfit(4, "shared CPUs within the ratio", cpus, room)
    if size != host.smallest_page_kib:
        # Huge pages cannot be overcommitted: their free number was tested by rule 1.
        return None
    reserved = sum(pool.size_kib * pool.total for pool in host.huge_pages) // 1024
    promised = sum(pool.size_kib * pool.used for pool in host.huge_pages) // 1024
    memory = host.memory_used_mib - promised + cell.memory_mib
    most = (host.memory_mib - reserved) * limits.memory_ratio
    return Misfit(4, "MiB within the ratio", memory, most) if memory > most else None
