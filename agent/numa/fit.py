"""Fit of a whole guest: which host cells it gets.

Whether a guest cell fits a host cell depends on no other pair, because host cells are disjoint.
Whether devices and networks are near enough depends only on the set of host cells, not on which
guest cell is on which of them. So the problem is to choose a set with a perfect matching, by a
search that leaves out whole families of sets.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from operator import add
from typing import Literal, NamedTuple

from agent.errors import AgentError, Undecided
from agent.model.instance import Guest, PlacedCell
from agent.model.names import number_of
from agent.numa.host import DeviceFit, HostCell, NoDeviceFit, Strategy, preferred
from agent.numa.matching import (
    Cells,
    Columns,
    Distances,
    Hitting,
    Table,
    including,
    interchangeable,
    match,
    without,
)
from agent.numa.pair import Allocated, CellLimits, Misfits, Pairs

# BUDGET: branches to search until a set is found. COLUMNS: the same limit as branches times
# columns, so that it is lower on a large host.
BUDGET, COLUMNS = 8_000, 50_000
# BETTER: branches times columns to search for a better set than the first. LITTLE: the same where
# there are more than MANY sets, of which only a small part can be searched.
BETTER, MANY, LITTLE = 12_000, 20_000, 1_000
# LOTS: lots of devices to search in all; once there were so many, only the first set is searched
# for. TEST: a comparison of the distances of devices counts as so many branches.
LOTS, TEST = 1_500, 5
# Where columns in order do not give a good set, sets are grown from so many columns.
SEEDS = 4

Groups = Sequence[frozenset[int]]
"""Groups of columns; a set needs one column of each."""
Score = tuple[int, int, int]
"""Score of a set of cells, lower is better: the number of devices that are not local, the sum of
their distances, and how far the cells lie apart.
"""


class Branch(NamedTuple):
    """A part of the search: the sets that contain ``taken`` and do not contain ``banned``."""

    at: int
    """The columns from this position on are undecided."""
    taken: Columns
    """Positions."""
    banned: int
    """Positions, as bits."""
    apart: int
    """The sum of the distances between the taken columns."""
    beside: Sequence[int]
    """For each undecided column the sum of its distances to the taken ones, doubled."""
    got: Sequence[int]
    """What the taken columns have of each demand."""
    matching: list[int]
    """A matching of all rows with all taken columns and without the banned ones."""
    unmet: Sequence[int]
    """The groups that still need a column, each as the bits of its positions."""
    devices: tuple[int, int]
    """The lower bound of the cost of devices."""


class Search:
    """The search of one fit."""

    def __init__(
        self,
        fits: Table,
        order: Sequence[int],
        groups: Groups,
        cells: Cells,
        devices: DeviceFit,
        budget: int = BUDGET,
    ) -> None:
        """``order``: the columns that some row fits, most wanted first. The attribute ``tests`` is
        the number of whole sets that were tested.
        """
        self._fits, self._order, self._devices = fits, order, devices
        self._wanted = devices.wanted
        self._ids = [cells.ids[column] for column in order]
        self._count, self._width = len(fits), len(order)
        self._every = (1 << self._width) - 1
        self._plain = all(line[column] for line in fits for column in order)
        self._groups = [
            sum(1 << place for place, column in enumerate(order) if column in group)
            for group in groups
        ]
        self._distances = Distances(cells, order)
        demands = devices.demands if self._wanted else ()
        self._demands = [
            (demand, [demand.near.get(cell, 0) for cell in self._ids]) for demand in demands
        ]
        # Without a column to leave out there is one set, which needs no search.
        self._only = self._width == self._count
        self._interchangeable = () if self._only else interchangeable(cells, order, self._kind)
        # A device that is not local is at least as far away as the two nearest cells are from each
        # other.
        self._next = cells.nearest if demands else 0
        self._most: dict[tuple[int, int], list[int]] = {}
        self._many = comb(self._width, self._count) > MANY
        self._budget, self._steps, self.tests = budget, 0, 0
        self._best: tuple[Score, Columns] | None = None
        self._in_order = False

    def best(self) -> tuple[Score, Columns] | None:
        """Return the score of the best set and the set, of equal ones that of the most wanted
        columns; None if there is none.

        On a very large host there may be a slightly better set that is not found.

        :raises Undecided: no set was found within the allowed steps, and there may be one.
        """
        matching = match(self._fits, self._order)
        if matching is None:
            return None
        try:
            self._decide(matching)
        except Undecided:
            if self._best is None:
                raise
        if self._best is None:
            return None
        score, places = self._best
        return score, tuple(self._order[place] for place in places)

    def try_first(self, columns: Columns) -> None:
        """Test a set with room for all rows before all others, so that these have to be better."""
        self._look(tuple(sorted(map(self._order.index, columns))), in_order=False)

    def _decide(self, matching: list[int]) -> None:
        devices = self._devices.least(frozenset(self._ids)) if self._wanted else (0, 0)
        if devices is None:
            return
        if self._only:
            self._look(tuple(range(self._width)), in_order=True)
            return
        if self._plain and self._many:
            for places in self._distances.grown_sets(self._count, SEEDS):
                self._look(places, in_order=False)
        self._walk(
            Branch(
                0,
                (),
                0,
                0,
                [0] * self._width,
                [0] * len(self._demands),
                matching,
                self._groups,
                devices,
            )
        )

    def _look(self, places: Columns, *, in_order: bool) -> None:
        """Keep a set if it is the best so far. ``in_order``: whether the sets that come later have
        less wanted columns.
        """
        if any(not any(group >> place & 1 for place in places) for group in self._groups):
            return
        if self._best is not None and self._best[1] == places:
            self._in_order |= in_order
            return
        self.tests += 1
        apart = self._distances.within(places)
        devices: tuple[int, int] | None = (0, 0)
        if self._wanted:
            cells = frozenset(self._ids[place] for place in places)
            devices = self._devices.least(cells)
            if devices is not None and self._best is not None and devices[0]:
                self._steps += TEST
            if devices is None or (self._best is not None and (*devices, apart) > self._best[0]):
                return
            devices = self._devices.cost(cells)
        if devices is None:
            return
        score = (*devices, apart)
        if (
            self._best is None
            or score < self._best[0]
            or (score == self._best[0] and in_order and not self._in_order)
        ):
            self._best, self._in_order = (score, places), in_order

    def _walk(self, branch: Branch) -> None:
        """Search all sets of a branch that may be better than the best so far."""
        missing = self._count - len(branch.taken)
        if not missing:
            self._look(branch.taken, in_order=True)
            return
        now: Branch | None = branch
        while now is not None and self._worthwhile(now, missing):
            if not now.banned >> now.at & 1 and (joined := self._with(now)) is not None:
                self._walk(joined)
            now = self._without(now)

    def _worthwhile(self, now: Branch, missing: int) -> bool:
        """Return whether the branch may have a set that is better than the best so far."""
        there = self._every >> now.at << now.at & ~now.banned
        if there.bit_count() < missing or (now.unmet and not _reachable(now.unmet, there, missing)):
            return False
        self._count_step()
        cost = now.devices
        if self._demands:
            raised = self._with_demands(now, missing)
            if raised is None:
                return False
            cost = raised
        if self._best is None:
            return True
        nearest = sorted(map(add, now.beside, self._distances.least(now.at, missing)))[:missing]
        least = *cost, now.apart + (sum(nearest) + 1) // 2
        return least < self._best[0] or (least == self._best[0] and not self._in_order)

    def _count_step(self) -> None:
        """Count one branch.

        :raises Undecided: there have been as many as are allowed.
        """
        self._steps += 1
        most = COLUMNS if self._best is None else LITTLE if self._many else BETTER
        enough = self._best is not None and self._devices.steps > LOTS
        if enough or self._steps > self._budget or self._steps * self._width > most:
            raise Undecided(
                f"no answer after {self._steps - 1} branches of the search",
                "another host, or fewer guest cells",
            )

    def _with_demands(self, now: Branch, missing: int) -> tuple[int, int] | None:
        """Return the lower bound of the cost of devices, raised by what the demands lack; None if
        the branch cannot have what is required.
        """
        far, distance = now.devices
        for (demand, _), got, more in zip(
            self._demands, now.got, self._more(now.at, missing), strict=True
        ):
            short = demand.lacking(got + more)
            if short > 0 and demand.required:
                return None
            if short > far:
                far, distance = short, short * self._next
        return far, distance

    def _with(self, now: Branch) -> Branch | None:
        """Return the branch in which the next column is taken; None if there is no room then."""
        at, column = now.at, self._order[now.at]
        matching = now.matching
        if not self._plain:
            joined = including(
                self._fits, matching, column, [self._order[place] for place in now.taken]
            )
            if joined is None:
                return None
            matching = joined
        return Branch(
            at + 1,
            (*now.taken, at),
            now.banned,
            now.apart + now.beside[0] // 2,
            list(map(add, now.beside[1:], self._distances.doubled(at))),
            [got + near[at] for got, (_, near) in zip(now.got, self._demands, strict=True)],
            matching,
            [group for group in now.unmet if not group >> at & 1],
            now.devices,
        )

    def _without(self, now: Branch) -> Branch | None:
        """Return the branch without the next column and without the later ones that it is
        interchangeable with; None if there is no room then.
        """
        at, matching, devices = now.at, now.matching, now.devices
        if at + 1 >= self._width:
            return None
        banned = now.banned | (0 if now.banned >> at & 1 else self._interchangeable[at])
        if not self._plain or self._wanted:
            there = self._every >> (at + 1) << (at + 1) & ~banned
            if there.bit_count() + len(now.taken) < self._count:
                return None
            places = [*now.taken, *_positions(there)]
            if not self._plain:
                others = [self._order[place] for place in places]
                for place in _positions((1 << at | banned) & ~now.banned):
                    left = without(self._fits, matching, self._order[place], others)
                    if left is None:
                        return None
                    matching = left
            if self._wanted and not now.banned >> at & 1:
                least = self._devices.least(frozenset(self._ids[place] for place in places))
                if least is None:
                    return None
                devices = least
        return Branch(
            at + 1,
            now.taken,
            banned,
            now.apart,
            now.beside[1:],
            now.got,
            matching,
            now.unmet,
            devices,
        )

    def _more(self, at: int, missing: int) -> list[int]:
        """Return how much of each demand the best ``missing`` columns from ``at`` on have."""
        key = at, missing
        if key not in self._most:
            self._most[key] = [
                sum(sorted(near[at:], reverse=True)[:missing]) for _, near in self._demands
            ]
        return self._most[key]

    def _kind(self, place: int) -> Hashable:
        column = self._order[place]
        fits = () if self._plain else tuple(row[column] for row in self._fits)
        groups = tuple(group >> place & 1 for group in self._groups)
        devices = self._devices.kind(self._ids[place]) if self._wanted else None
        return fits, groups, devices


def _positions(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def _reachable(groups: Sequence[int], there: int, count: int) -> bool:
    """Return whether ``count`` of the columns ``there`` can be enough for all groups: each group
    has one, and not more than ``count`` groups are disjoint.
    """
    apart, seen = 0, 0
    for group in groups:
        if not group & there:
            return False
        if not group & seen:
            apart, seen = apart + 1, seen | group
    return apart <= count


Failed = Literal["count", "allocation", "pair", "matching", "networks", "devices"]


@dataclass(frozen=True, slots=True)
class Networks:
    """The networks of the guest's ports."""

    physnets: frozenset[str] = frozenset()
    tunneled: bool = False

    def local(self, host: Sequence[HostCell]) -> Mapping[str, frozenset[int]]:
        """Return, for each network that is local to some cell of the host, the positions of those
        cells. The guest needs one of them.
        """
        groups = {
            f"physnet {name}": frozenset(
                at for at, cell in enumerate(host) if name in cell.physnets
            )
            for name in sorted(self.physnets)
        }
        if self.tunneled:
            groups["tunnels"] = frozenset(at for at, cell in enumerate(host) if cell.tunneled)
        return {name: group for name, group in groups.items() if group}


NO_NETWORKS = Networks()


@dataclass(frozen=True, slots=True)
class Fit:
    """The result of a fit."""

    cells: tuple[PlacedCell, ...]
    """Where each guest cell is placed, in the guest's order."""
    score: Score
    """Of the chosen set; lower is better."""
    set_tests: int
    """How many sets of cells were tested."""


class NoFit(AgentError):
    """The guest cannot be placed.
    Remedy: use another host or a smaller guest.
    """

    code = "numa.no-fit"

    def __init__(self, failed: Failed, why: str, misfits: Misfits, set_tests: int = 0) -> None:
        """``failed``: the test that nothing passed. ``misfits``: of all pairs of cells.
        ``set_tests``: how many sets of cells were tested.
        """
        super().__init__(
            why,
            "another host, or a smaller guest",
            failed=failed,
            misfits=misfits,
            set_tests=set_tests,
        )
        self.failed = failed
        self.misfits = misfits
        self.set_tests = set_tests


def fit(
    host: Sequence[HostCell],
    guest: Guest,
    *,
    limits: CellLimits | None = None,
    networks: Networks | None = None,
    devices: DeviceFit | None = None,
    allocated: Mapping[int, Allocated] | None = None,
    strategy: Strategy = "spread",
    budget: int = BUDGET,
) -> Fit:
    """Place ``guest`` on the cells of ``host``; changes neither. ``allocated``: what the scheduler
    allocated of each cell, if of any; the guest is placed on those cells.

    :raises NoFit: the guest does not fit; the error has the reason.
    :raises Undecided: there is no result after ``budget`` steps of the search. Steps are counted
        and not timed, so that the answer does not depend on the load.
    """
    devices, groups = devices or NoDeviceFit(), (networks or NO_NETWORKS).local(host)
    allocated = allocated or {}
    named = [cell.id for cell in host if allocated.get(cell.id)]
    _check_count(host, guest, named)
    pairs = Pairs(guest, host, limits, allocated)
    order = [
        column
        for column in preferred(host, guest, devices, strategy)
        if any(line[column] for line in pairs.fits)
    ]
    _check_room(order, pairs)
    needed = (
        *groups.values(),
        *(frozenset({at}) for at, cell in enumerate(host) if cell.id in named),
    )
    ids = [cell.id for cell in host]
    cells = Cells(ids, [[cell.distances.get(other, 0) for other in ids] for cell in host])
    search = Search(pairs.fits, order, needed, cells, devices, budget)
    if needed:
        hit = Hitting(pairs.fits, order, needed).columns()
        if hit is None:
            raise _not_all(named, groups, pairs.misfits())
        search.try_first(hit)
    found = search.best()
    if found is None:
        raise NoFit(
            "devices",
            "no cells with room are near enough to the wanted devices",
            pairs.misfits(),
            search.tests,
        )
    score, columns = found
    matching = match(pairs.fits, columns) or ()
    return Fit(
        tuple(pairs.placed(row, column) for row, column in enumerate(matching)), score, search.tests
    )


def _check_count(host: Sequence[HostCell], guest: Guest, named: Sequence[int]) -> None:
    """Check that the host has enough cells, and the guest has enough for the cells ``named``, of
    which the scheduler allocated.

    :raises NoFit: the host or the guest has too few.
    """
    if len(guest.cells) > len(host):
        raise NoFit(
            "count",
            f"{number_of(len(guest.cells), 'guest cell')} on {number_of(len(host), 'host cell')}",
            {},
        )
    if len(named) > len(guest.cells):
        raise NoFit(
            "allocation",
            (
                f"the scheduler allocated of {cells_named(named)}, and the guest has "
                f"{number_of(len(guest.cells), 'cell')}"
            ),
            {},
        )


def _not_all(named: Sequence[int], groups: Mapping[str, frozenset[int]], misfits: Misfits) -> NoFit:
    """Return the error for a guest that cannot have a cell in each of the groups that it needs."""
    if not groups:
        return NoFit(
            "allocation",
            (
                f"the guest cannot have cells on all of {cells_named(named)}, of which the "
                "scheduler allocated"
            ),
            misfits,
        )
    those = f"among {cells_named(named)}, of which the scheduler allocated, " if named else ""
    return NoFit(
        "networks", f"{those}no cells with room are local to {' and '.join(groups)}", misfits
    )


def cells_named(ids: Sequence[int]) -> str:
    """Return the ids of some cells of a host, in words."""
    *others, last = map(str, ids)
    return f"cells {', '.join(others)} and {last}" if others else f"cell {last}"


def _check_room(order: Sequence[int], pairs: Pairs) -> None:
    """Check that there is room for all guest cells, wherever devices and networks are.

    :raises NoFit: there is none.
    """
    for row, line in enumerate(pairs.fits):
        if not any(line):
            raise NoFit("pair", f"guest cell {row} fits no host cell", pairs.misfits())
    if match(pairs.fits, order) is None:
        raise NoFit(
            "matching", "each guest cell fits some host cell, but not all at once", pairs.misfits()
        )
