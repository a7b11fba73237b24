"""The pair test: one guest cell on one host cell."""

from dataclasses import dataclass

from agent.numa.guest import Guest, GuestCell, PageRequest, PlacedCell
from agent.numa.host import HostCell, Pages
from agent.numa.pinning import pin


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a cell may be overcommitted: ratios of shared CPUs and of memory."""

    cpu_ratio: float
    memory_ratio: float


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a guest cell does not fit a host cell: the first rule that fails, what it needs and what is there."""

    rule: str
    needed: object
    available: object


def pair(guest: Guest, index: int, host: HostCell, limits: Limits | None) -> PlacedCell | Misfit:
    """Guest cell ``index`` on ``host``, or why not. Neither is changed. Equal to a limit is a fit."""
    cell, emulator = guest.cells[index], guest.emulator_cpus(index)
    size = _page_size(guest, cell, host)
    if isinstance(size, Misfit):
        return size
    misfit = _cpus(guest, cell, host, emulator) or (_limits(guest, cell, host, limits) if limits else None)
    if misfit:
        return misfit
    if not guest.pinned:
        return PlacedCell(cell, host.id, size)
    pins = pin(host.free_cores(), len(cell.dedicated), emulator, guest.thread_policy, smt=host.smt)
    if pins is None:
        return Misfit(f"pinning with thread policy {guest.thread_policy or 'prefer'}", len(cell.dedicated) + emulator, host.free_cores())
    return PlacedCell(cell, host.id, size, dict(zip(sorted(cell.dedicated), pins.cpus, strict=True)), pins.reserved)


def _page_size(guest: Guest, cell: GuestCell, host: HostCell) -> int | Misfit | None:
    """The page size to use; None if the host tells nothing about pages."""
    memory = cell.memory_mib
    if guest.pages is not None:
        for pool in _candidates(guest.pages, host.pages):
            if memory * 1024 % pool.size_kib == 0 and memory * 1024 <= pool.free * pool.size_kib:
                return pool.size_kib
        return Misfit(f"pages {guest.pages}", memory, {pool.size_kib: pool.free for pool in host.pages})
    if host.pages:
        pool = min(host.pages, key=lambda pool: pool.size_kib)
        # Guests that are not pinned may share memory that is promised twice, but none may be larger than the cell.
        there = pool.free if guest.pinned else pool.total
        if memory * 1024 % pool.size_kib or memory * 1024 > there * pool.size_kib:
            return Misfit("memory in the smallest pages", memory, there * pool.size_kib // 1024)
        return pool.size_kib
    available = host.free_memory_mib if guest.pinned else host.memory_mib
    return Misfit("memory", memory, available) if memory > available else None


def _candidates(request: PageRequest, pools: tuple[Pages, ...]) -> list[Pages]:
    """The pools that the request admits, in the order to try them."""
    ordered = sorted(pools, key=lambda pool: pool.size_kib)
    if request == "small":
        return ordered[:1]
    if request == "large":
        return ordered[:0:-1]
    if request == "any":
        return ordered[::-1]
    return [pool for pool in ordered if pool.size_kib == request]


def _cpus(guest: Guest, cell: GuestCell, host: HostCell, emulator: int) -> Misfit | None:
    if guest.pinned:
        need = len(cell.dedicated) + emulator
        if need > len(host.dedicated):
            return Misfit("dedicated CPUs of the cell", need, len(host.dedicated))
        if need > len(host.free_dedicated):
            return Misfit("free dedicated CPUs", need, len(host.free_dedicated))
    if len(cell.shared) > len(host.shared):
        # A guest may not overcommit against itself, whatever the ratio.
        return Misfit("shared CPUs of the cell", len(cell.shared), len(host.shared))
    return None


def _limits(guest: Guest, cell: GuestCell, host: HostCell, limits: Limits) -> Misfit | None:
    if not cell.shared:
        return None
    cpus, room = host.shared_used + len(cell.shared), len(host.shared) * limits.cpu_ratio
    if cpus > room:
        return Misfit("shared CPUs within the ratio", cpus, room)
    memory, most = host.memory_used_mib + cell.memory_mib, host.memory_mib * limits.memory_ratio
    # Huge pages cannot be overcommitted: their free count has decided already.
    if guest.pages in (None, "small") and memory > most:
        return Misfit("memory within the ratio", memory, most)
    return None
