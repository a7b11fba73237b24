"""Fit of a whole guest: which host cells it gets.

Whether a guest cell fits a host cell depends on no other pair, because host cells are disjoint.
Whether devices and networks are near enough depends only on the set of host cells, not on which
guest cell is on which of them. So the problem is to choose a set with a perfect matching, by a
search that leaves out whole families of sets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agent.errors import AgentError
from agent.model.instance import Guest, PlacedCell
from agent.model.names import number_of
from agent.numa.host import DeviceFit, HostCell, NoDeviceFit, Strategy, preferred
from agent.numa.matching import Cells, Hitting, match
from agent.numa.pair import Allocated, CellLimits, Misfits, Pairs
from agent.numa.sets import BUDGET, Score, Search

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
