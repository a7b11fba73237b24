"""The fit of a whole guest: which host cells it gets.

Whether a guest cell fits a host cell depends on no other pair, because host cells are disjoint; whether devices and
networks are near enough depends only on the set of host cells, not on who sits where. So the problem is to choose a set
and a perfect matching, which costs as many tests as there are sets, not as there are orders.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, Protocol

from agent.errors import AgentError
from agent.numa.guest import Guest, PlacedCell
from agent.numa.host import HostCell
from agent.numa.matching import match
from agent.numa.pair import Limits, Misfit, pair

Strategy = Literal["spread", "pack"]
BUDGET = 20_000


class Devices(Protocol):
    """What the fit has to know of the devices that a guest wants."""

    @property
    def wanted(self) -> bool:
        """Whether the guest wants any."""

    def free(self, cell: int) -> int:
        """How many free devices are on the cell."""

    def fits(self, cells: frozenset[int]) -> bool:
        """Whether all wanted devices can be had if the guest sits on ``cells``."""

    def cost(self, cells: frozenset[int]) -> tuple[int, int]:
        """How many wanted devices would not be local, and the sum of their distances to the nearest cell."""


class NoDevices:
    """A guest without devices on a host without any."""

    wanted = False

    def free(self, cell: int) -> int:  # noqa: ARG002
        """None."""
        return 0

    def fits(self, cells: frozenset[int]) -> bool:  # noqa: ARG002
        """Always."""
        return True

    def cost(self, cells: frozenset[int]) -> tuple[int, int]:  # noqa: ARG002
        """Nothing."""
        return 0, 0


@dataclass(frozen=True, slots=True)
class Networks:
    """The networks that the guest's ports are on."""

    physnets: frozenset[str] = frozenset()
    tunneled: bool = False

    def groups(self, host: Sequence[HostCell]) -> list[frozenset[int]]:
        """For each network that is local to some cell of the host: those cells, of which the guest needs one."""
        groups = [frozenset(cell.id for cell in host if name in cell.physnets) for name in sorted(self.physnets)]
        if self.tunneled:
            groups.append(frozenset(cell.id for cell in host if cell.tunneled))
        return [group for group in groups if group]


@dataclass(frozen=True, slots=True)
class Fit:
    """Where each guest cell sits, in the guest's order, and the score of the chosen set (lower is better)."""

    cells: tuple[PlacedCell, ...]
    score: tuple[int, ...]
    set_tests: int


class NoFit(AgentError):
    """The guest cannot be placed. ``misfits``: (guest cell, host cell) to the first rule that fails."""

    code = "numa.no-fit"

    def __init__(self, why: str, misfits: dict[tuple[int, int], Misfit], set_tests: int = 0) -> None:
        super().__init__(why, "another host, or a smaller guest", misfits=misfits, set_tests=set_tests)
        self.misfits = misfits
        self.set_tests = set_tests


class BudgetExceeded(NoFit):
    """Nobody knows: the search was given up."""

    code = "numa.search-budget"


def fit(
    host: Sequence[HostCell], guest: Guest, *, limits: Limits | None = None, networks: Networks | None = None, devices: Devices | None = None,
    strategy: Strategy = "spread", budget: int = BUDGET,
) -> Fit:  # fmt: skip
    """Place ``guest``. Nothing given is changed.

    :raises NoFit: it does not fit; the reason is in the error.
    :raises BudgetExceeded: ``budget`` sets of cells were tested without an end; counted, so that load does not matter.
    """
    devices, groups = devices or NoDevices(), (networks or Networks()).groups(host)
    if len(guest.cells) > len(host):
        raise NoFit(f"{len(guest.cells)} guest cells on {len(host)} host cells", {})
    table = [[pair(guest, index, cell, limits) for cell in host] for index in range(len(guest.cells))]
    misfits = {(row, host[column].id): one for row, line in enumerate(table) for column, one in enumerate(line) if isinstance(one, Misfit)}
    fits = [[isinstance(one, PlacedCell) for one in line] for line in table]
    for row, line in enumerate(fits):
        if not any(line):
            raise NoFit(f"guest cell {row} fits no host cell", misfits)
    tests = 0
    for score, columns in _candidates(host, guest, fits, groups, devices, strategy):
        matched = match(fits, columns)
        if matched is None:
            continue
        if tests == budget:
            raise BudgetExceeded(f"no answer after {budget} sets of cells", misfits, tests)
        tests += 1
        if devices.fits(frozenset(host[column].id for column in columns)):
            placed = tuple(one for row, column in enumerate(matched) if isinstance(one := table[row][column], PlacedCell))
            return Fit(placed, score, tests)
    raise NoFit("no set of cells has room for all guest cells" if not tests else "no set of cells is near enough to the wanted devices", misfits, tests)


def _candidates(
    host: Sequence[HostCell], guest: Guest, fits: Sequence[Sequence[bool]], groups: Sequence[frozenset[int]], devices: Devices, strategy: Strategy
) -> Iterable[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Sets of columns with their scores, best first: those that have a cell for each group and can hold every guest cell."""
    order = _preference(host, guest, devices, strategy) if len(guest.cells) < len(host) else list(range(len(host)))
    usable = [column for column in order if any(line[column] for line in fits)]
    found = [
        (_score(host, columns, devices), columns)
        for columns in combinations(usable, len(guest.cells))
        if all(any(host[column].id in group for column in columns) for group in groups)
    ]
    return sorted(found, key=lambda one: one[0])


def _preference(host: Sequence[HostCell], guest: Guest, devices: Devices, strategy: Strategy) -> list[int]:
    """The columns, most wanted first: by devices, then by CPUs, then by memory, then as given."""
    sign = 1 if strategy == "spread" else -1

    def key(column: int) -> tuple[int, int, int]:
        cell = host[column]
        near = -devices.free(cell.id) if devices.wanted else devices.free(cell.id)
        cpus = -len(cell.free_dedicated) if guest.pinned else cell.shared_used
        return near, sign * cpus, sign * -cell.free_memory_mib

    return sorted(range(len(host)), key=key)


def _score(host: Sequence[HostCell], columns: Sequence[int], devices: Devices) -> tuple[int, ...]:
    """Devices that are not local, their distances, and how far the cells of the guest lie apart."""
    cells = [host[column] for column in columns]
    return (*(devices.cost(frozenset(cell.id for cell in cells)) if devices.wanted else (0, 0)), sum(_distances(cells)))


def _distances(cells: Sequence[HostCell]) -> Iterator[int]:
    for one, other in combinations(cells, 2):
        yield one.distances.get(other.id, 0)
