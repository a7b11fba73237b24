"""Whether a guest fits, found by trying every guest cell on every host cell in every order. Slow,
and nothing clever.
"""

from collections.abc import Sequence
from itertools import permutations

from agent.model.instance import Guest
from agent.numa.fit import Networks
from agent.numa.host import HostCell
from agent.numa.pair import CellLimits
from tests.unit.numa.devices import LocalDevices


def possible(
    host: Sequence[HostCell],
    guest: Guest,
    limits: CellLimits | None,
    networks: Networks,
    devices: LocalDevices,
) -> bool:
    return any(
        all(sits(guest, index, cell, limits) for index, cell in enumerate(chosen))
        and _connected(host, chosen, networks)
        and devices.fits(frozenset(cell.id for cell in chosen))
        for chosen in permutations(host, len(guest.cells))
    )


def _connected(host: Sequence[HostCell], chosen: Sequence[HostCell], networks: Networks) -> bool:
    for name in networks.physnets:
        if any(name in cell.physnets for cell in host) and not any(
            name in cell.physnets for cell in chosen
        ):
            return False
    return (
        not networks.tunneled
        or any(cell.tunneled for cell in chosen)
        or not any(cell.tunneled for cell in host)
    )


def sits(guest: Guest, index: int, host: HostCell, limits: CellLimits | None) -> bool:
    cell = guest.cells[index]
    extra = 1 if guest.emulator_policy == "isolate" and index == 0 else 0
    size = _page_size(guest, cell.memory_mib * 1024, host)
    if size == -1:
        return False
    if len(cell.shared) > len(host.shared):
        return False
    if guest.cpu_policy != "shared" and not _pinnable(
        host, len(cell.dedicated), extra, guest.thread_policy
    ):
        return False
    if limits is None or not cell.shared:
        return True
    if host.shared_used + len(cell.shared) > len(host.shared) * limits.cpu_ratio:
        return False
    smallest = min((pool.size_kib for pool in host.pages), default=0)
    if size != smallest:
        return True
    huge = [pool for pool in host.pages if pool.size_kib != smallest]
    used = host.memory_used_mib - sum(pool.used * pool.size_kib for pool in huge) // 1024
    there = host.memory_mib - sum(pool.total * pool.size_kib for pool in huge) // 1024
    return used + cell.memory_mib <= there * limits.memory_ratio


def _page_size(guest: Guest, kib: int, host: HostCell) -> int:
    """The size chosen, 0 if the host tells nothing, -1 if there is none."""
    sizes = sorted(pool.size_kib for pool in host.pages)
    if guest.pages is None and not sizes:
        used = host.memory_used_mib if guest.cpu_policy != "shared" else 0
        return 0 if kib <= (host.memory_mib - used) * 1024 else -1
    accepted = {"small": sizes[:1], "large": sizes[1:], "any": sizes, None: sizes[:1]}.get(
        guest.pages, [guest.pages]
    )
    for pool in sorted(host.pages, key=lambda pool: -pool.size_kib):
        count = (
            pool.total
            if guest.pages is None and guest.cpu_policy == "shared"
            else pool.total - pool.used - pool.reserved
        )
        if pool.size_kib in accepted and kib % pool.size_kib == 0 and kib <= count * pool.size_kib:
            return pool.size_kib
    return -1


def _pinnable(host: HostCell, need: int, extra: int, policy: str | None) -> bool:
    free = host.dedicated - host.pinned
    if need + extra > len(free):
        return False
    if need and policy == "isolate":
        return all(len(core) == 1 for core in host.siblings)
    if need and policy == "require":
        return need <= sum(len(core & free) for core in host.siblings if len(core & free) > 1)
    return True
