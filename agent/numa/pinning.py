"""Pinning: which free host CPUs of one cell a guest cell's dedicated CPUs get.

Deterministic, and sparing: cores are taken in ascending order, those first that have no more free threads than are
needed, so that whole cores stay for later guests.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from agent.numa.guest import ThreadPolicy

Cores = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Pins:
    """Host CPUs for the guest's CPUs in their order, and for the emulator."""

    cpus: tuple[int, ...]
    reserved: frozenset[int] = frozenset()


def pin(cores: Cores, need: int, reserve: int, policy: ThreadPolicy | None, *, smt: bool) -> Pins | None:
    """Choose ``need`` CPUs of the free threads ``cores``, and ``reserve`` more for the emulator.

    ``smt``: whether the cell has cores with more than one thread, free or not. None: it cannot be done.
    """
    if policy == "isolate":
        return None if smt else _isolated(cores, need, reserve)
    least = 2 if policy == "require" else 1
    if policy == "require" and not smt:
        return None
    widest = min(max((len(core) for core in cores), default=0), need)
    for threads in range(widest, least - 1, -1):
        chosen = _evenly(cores, need, threads)
        if chosen is not None and (pins := _with_reserve(cores, chosen, reserve)) is not None:
            return pins
    usable = [core for core in cores if len(core) >= least]
    chosen = _unevenly(usable, need) if policy == "require" else _one_by_one(usable, need)
    return None if chosen is None else _with_reserve(cores, chosen, reserve)


def _isolated(cores: Cores, need: int, reserve: int) -> Pins | None:
    """On a host without SMT every CPU is a core."""
    cpus = [cpu for core in cores for cpu in core]
    if len(cpus) < need + reserve:
        return None
    return Pins(tuple(cpus[:need]), frozenset(cpus[need : need + reserve]))


def _evenly(cores: Cores, need: int, threads: int) -> list[int] | None:
    """``threads`` of each core, the last one as many as are left; cores with just so many first."""
    fitting = sorted((core for core in cores if len(core) >= threads), key=lambda core: len(core) != threads)
    if threads * len(fitting) < need:
        return None
    used = fitting[: -(-need // threads)]
    return [cpu for core in sorted(used, key=lambda core: core[0]) for cpu in core[:threads]][:need]


def _unevenly(cores: Cores, need: int) -> list[int] | None:
    """Whole cores, widest first; the last but one gives up a thread rather than that the last one gives only one."""
    if sum(len(core) for core in cores) < need:
        return None
    shares: list[tuple[Sequence[int], int]] = []
    left = need
    for core in sorted(cores, key=lambda core: (-len(core), core[0])):
        if left:
            share = min(len(core), left)
            shares.append((core, share))
            left -= share
    if len(shares) > 1 and shares[-1][1] == 1 and shares[-2][1] > 2:
        shares[-2:] = [(shares[-2][0], shares[-2][1] - 1), (shares[-1][0], 2)]
    return [cpu for core, share in sorted(shares, key=lambda one: one[0][0]) for cpu in core[:share]]


def _one_by_one(cores: Cores, need: int) -> list[int] | None:
    cpus = [cpu for core in cores for cpu in core]
    return cpus[:need] if len(cpus) >= need else None


def _with_reserve(cores: Cores, chosen: list[int], reserve: int) -> Pins | None:
    """The emulator's CPUs from what remains, out of the most broken cores first."""
    taken = set(chosen)
    rests = sorted(([cpu for cpu in core if cpu not in taken] for core in cores), key=len)
    remaining = [cpu for rest in rests for cpu in rest]
    return Pins(tuple(chosen), frozenset(remaining[:reserve])) if len(remaining) >= reserve else None
