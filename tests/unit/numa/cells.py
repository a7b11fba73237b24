"""The hosts and guests of the tests of cells."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agent.model.instance import Guest, GuestCell, PlacedCell
from agent.numa.fit import NoFit, fit
from agent.numa.host import HostCell, Pages

NOTHING = frozenset[int]()


def cpus(start: int, count: int) -> frozenset[int]:
    return frozenset(range(start, start + count))


def host_cell(
    number: int, offered: frozenset[int], *, shared: bool = False, memory: int = 16384, **more: Any
) -> HostCell:
    """A cell whose CPUs are all dedicated, or all shared."""
    return HostCell(
        number, offered if shared else NOTHING, NOTHING if shared else offered, memory, **more
    )


def h2(**more: Any) -> tuple[HostCell, HostCell]:
    """Two cells of 8 CPUs and 16384 MiB, without SMT, all dedicated."""
    return host_cell(0, cpus(0, 8), **more), host_cell(1, cpus(8, 8), **more)


def h2s(**more: Any) -> tuple[HostCell, HostCell]:
    """The same, all shared."""
    return h2(shared=True, **more)


def ht1(*pinned: int) -> HostCell:
    """A cell of 4 cores with 2 threads each: {0,1}, {2,3}, ..."""
    return host_cell(
        0,
        cpus(0, 8),
        siblings=tuple(cpus(first, 2) for first in range(0, 8, 2)),
        pinned=frozenset(pinned),
    )


def h4(**more: Any) -> tuple[HostCell, ...]:
    """Four cells of 4 CPUs and 8192 MiB."""
    return tuple(host_cell(number, cpus(4 * number, 4), memory=8192, **more) for number in range(4))


def changed(host: Sequence[HostCell], number: int, **what: Any) -> tuple[HostCell, ...]:
    """``host`` with another cell ``number``."""
    return tuple(replace(cell, **what) if cell.id == number else cell for cell in host)


def full(host: Sequence[HostCell], number: int) -> tuple[HostCell, ...]:
    """``host`` with no free dedicated CPU on cell ``number``."""
    return tuple(
        replace(cell, pinned=cell.dedicated) if cell.id == number else cell for cell in host
    )


def dedicated(*cells: tuple[int, int], **more: Any) -> Guest:
    """D(n,m) for each of ``cells``: n dedicated CPUs and m MiB."""
    return Guest(
        tuple(GuestCell(NOTHING, one, memory) for one, memory in _numbered(cells)),
        "dedicated",
        **more,
    )


def shared(*cells: tuple[int, int], **more: Any) -> Guest:
    """S(n,m) for each of ``cells``."""
    return Guest(tuple(GuestCell(one, NOTHING, memory) for one, memory in _numbered(cells)), **more)


def _numbered(cells: Sequence[tuple[int, int]]) -> list[tuple[frozenset[int], int]]:
    starts = [sum(count for count, _ in cells[:index]) for index in range(len(cells))]
    return [
        (cpus(start, count), memory) for start, (count, memory) in zip(starts, cells, strict=True)
    ]


def placed_on(host: Sequence[HostCell], guest: Guest, **more: Any) -> list[int]:
    """The host cells that the guest cells get."""
    return [cell.host_cell for cell in fit(host, guest, **more).cells]


def placed(host: Sequence[HostCell] | HostCell, guest: Guest, **more: Any) -> PlacedCell:
    """The only cell of ``guest``, placed."""
    (cell,) = fit([host] if isinstance(host, HostCell) else host, guest, **more).cells
    return cell


def pinned_to(host: Sequence[HostCell] | HostCell, guest: Guest, **more: Any) -> list[int]:
    """The host CPUs of the guest's CPUs, in the order of the latter."""
    pins = placed(host, guest, **more).pins
    return [pins[cpu] for cpu in sorted(pins)]


def refused(host: Sequence[HostCell] | HostCell, guest: Guest, **more: Any) -> NoFit:
    """Why ``guest`` does not fit."""
    try:
        found = fit([host] if isinstance(host, HostCell) else host, guest, **more)
    except NoFit as reason:
        return reason
    raise AssertionError(f"it fits: {found}")


def pages(**pools: int) -> tuple[Pages, ...]:
    """Pools by size: ``pages(k4=1024, k2048=512)``."""
    return tuple(Pages(int(size[1:]), total) for size, total in pools.items())
