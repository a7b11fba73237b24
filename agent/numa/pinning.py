"""Pinning: which free host CPUs of one cell the dedicated CPUs of a guest cell get.

Deterministic: cores are taken in ascending order. Cores with no more free threads than needed come
first, so that whole cores stay free for later guests.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent.model.guest import ThreadPolicy

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
