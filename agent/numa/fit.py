"""The fit of a whole guest: which host cells it gets.

Whether a guest cell fits a host cell depends on no other pair, because host cells are disjoint;
whether devices and networks are near enough depends only on the set of host cells, not on who sits
where. So the problem is to choose a set with a perfect matching, by a search that leaves out whole
families of sets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agent.errors import AgentError
from agent.model.guest import Guest, PlacedCell
from agent.model.names import number_of
from agent.numa.devices import DeviceFit, NoDeviceFit, Strategy, preferred
from agent.numa.host import HostCell
from agent.numa.matching import Hitting, match
from agent.numa.pair import Allocated, CellLimits, Misfits, Pairs
from agent.numa.sets import BUDGET, Cells, Score, Search

Failed = Literal["count", "allocation", "pair", "matching", "networks", "devices"]


@dataclass(frozen=True, slots=True)
class Networks:
    """The networks that the guest's ports are on."""

    physnets: frozenset[str] = frozenset()
    tunneled: bool = False

    def local(self, host: Sequence[HostCell]) -> Mapping[str, frozenset[int]]:
        """For each network that is local to some cell of the host: the positions of those cells.
        The guest needs one.
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
    """Where each guest cell sits, in the guest's order, and the score of the chosen set (lower is
    better).
    """

    cells: tuple[PlacedCell, ...]
    score: Score
    set_tests: int


class NoFit(AgentError):
    """The guest cannot be placed. ``failed``: the test that nothing passed; ``set_tests``: how many
    sets of cells were tried.
    """

    code = "numa.no-fit"

    def __init__(self, failed: Failed, why: str, misfits: Misfits, set_tests: int = 0) -> None:
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
    """Place ``guest``. Nothing given is changed. ``allocated``: of each cell, if the scheduler took
    some of any; the guest sits on those.

    :raises NoFit: it does not fit; the reason is in the error.
    :raises Undecided: nobody knows after ``budget`` steps of the search; counted, so that load does
        not matter.
    """
    devices, groups = devices or NoDeviceFit(), (networks or NO_NETWORKS).local(host)
    if len(guest.cells) > len(host):
        raise NoFit(
            "count",
            f"{number_of(len(guest.cells), 'guest cell')} on {number_of(len(host), 'host cell')}",
            {},
        )
    allocated = allocated or {}
    named = [cell.id for cell in host if allocated.get(cell.id)]
    if len(named) > len(guest.cells):
        raise NoFit(
            "allocation",
            (
                f"the scheduler allocated of {cells_named(named)}, and the guest has "
                f"{number_of(len(guest.cells), 'cell')}"
            ),
            {},
        )
    pairs = Pairs(guest, host, limits, allocated)
    fits = pairs.fits
    order = [
        column
        for column in preferred(host, guest, devices, strategy)
        if any(line[column] for line in fits)
    ]
    _check_room(order, pairs)
    needed = (
        *groups.values(),
        *(frozenset({at}) for at, cell in enumerate(host) if cell.id in named),
    )
    search = Search(fits, order, needed, _cells(host), devices, budget)
    if needed:
        hit = Hitting(fits, order, needed).columns()
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
    matching = match(fits, columns) or ()
    return Fit(
        tuple(pairs.placed(row, column) for row, column in enumerate(matching)), score, search.tests
    )


def _cells(host: Sequence[HostCell]) -> Cells:
    ids = [cell.id for cell in host]
    return Cells(ids, [[cell.distances.get(other, 0) for other in ids] for cell in host])


def _not_all(named: Sequence[int], groups: Mapping[str, frozenset[int]], misfits: Misfits) -> NoFit:
    """Why the guest cannot have cells of all that it has to."""
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
    """Some cells of a host, in words."""
    *others, last = map(str, ids)
    return f"cells {', '.join(others)} and {last}" if others else f"cell {last}"


def _check_room(order: Sequence[int], pairs: Pairs) -> None:
    """Whether there is room, wherever devices and networks may be.

    :raises NoFit: there is none.
    """
    for row, line in enumerate(pairs.fits):
        if not any(line):
            raise NoFit("pair", f"guest cell {row} fits no host cell", pairs.misfits())
    if match(pairs.fits, order) is None:
        raise NoFit(
            "matching", "each guest cell fits some host cell, but not all at once", pairs.misfits()
        )
