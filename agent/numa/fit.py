"""The fit of a whole guest: which host cells it gets.

Whether a guest cell fits a host cell depends on no other pair, because host cells are disjoint; whether devices and
networks are near enough depends only on the set of host cells, not on who sits where. So the problem is to choose a set
and a perfect matching, which costs as many tests as there are sets, not as there are orders.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Literal

from agent.errors import AgentError
from agent.model.guest import Guest, PlacedCell
from agent.numa.devices import Devices, NoDevices
from agent.numa.host import HostCell
from agent.numa.matching import match
from agent.numa.pair import Limits, Misfit, pair
from agent.numa.preference import Score, Scores, Strategy, preferred
from agent.numa.sets import Columns, Sets

BUDGET = 20_000
Misfits = Mapping[tuple[int, int], Misfit]
"""(guest cell, id of the host cell) to the first rule that fails."""
Failed = Literal["count", "pair", "matching", "networks", "devices"]


@dataclass(frozen=True, slots=True)
class Networks:
    """The networks that the guest's ports are on."""

    physnets: frozenset[str] = frozenset()
    tunneled: bool = False

    def local(self, host: Sequence[HostCell]) -> Mapping[str, frozenset[int]]:
        """For each network that is local to some cell of the host: the positions of those cells. The guest needs one."""
        groups = {f"physnet {name}": frozenset(at for at, cell in enumerate(host) if name in cell.physnets) for name in sorted(self.physnets)}
        if self.tunneled:
            groups["tunnels"] = frozenset(at for at, cell in enumerate(host) if cell.tunneled)
        return {name: group for name, group in groups.items() if group}


@dataclass(frozen=True, slots=True)
class Fit:
    """Where each guest cell sits, in the guest's order, and the score of the chosen set (lower is better)."""

    cells: tuple[PlacedCell, ...]
    score: Score
    set_tests: int


class NoFit(AgentError):
    """The guest cannot be placed. ``failed``: the test that nothing passed; ``set_tests``: how many sets of cells were tried."""

    code = "numa.no-fit"

    def __init__(self, failed: Failed, why: str, misfits: Misfits, set_tests: int = 0) -> None:
        super().__init__(why, "another host, or a smaller guest", failed=failed, misfits=misfits, set_tests=set_tests)
        self.failed = failed
        self.misfits = misfits
        self.set_tests = set_tests


class BudgetExceeded(AgentError):
    """Nobody knows whether the guest fits: the search was given up."""

    code = "numa.search-budget"


def fit(
    host: Sequence[HostCell],
    guest: Guest,
    *,
    limits: Limits | None = None,
    networks: Networks | None = None,
    devices: Devices | None = None,
    strategy: Strategy = "spread",
    budget: int = BUDGET,
) -> Fit:
    """Place ``guest``. Nothing given is changed.

    :raises NoFit: it does not fit; the reason is in the error.
    :raises BudgetExceeded: none of ``budget`` sets of cells will do, and there are more; counted, so that load does not matter.
    """
    devices, groups = devices or NoDevices(), (networks or Networks()).local(host)
    if len(guest.cells) > len(host):
        raise NoFit("count", f"{len(guest.cells)} guest cells on {len(host)} host cells", {})
    table = [[pair(guest, row, cell, limits) for cell in host] for row in range(len(guest.cells))]
    misfits = {(row, host[column].id): one for row, line in enumerate(table) for column, one in enumerate(line) if isinstance(one, Misfit)}
    fits = [[isinstance(one, PlacedCell) for one in line] for line in table]
    order = [column for column in preferred(host, guest, devices, strategy) if any(line[column] for line in fits)]
    _check_room(fits, order, misfits)
    sets = Sets(fits, order, tuple(groups.values())).all()
    scores = Scores(host, devices)
    found = sorted(((scores.of(columns), columns) for columns in islice(sets, budget) if columns), key=itemgetter(0))
    for tests, (reached, columns) in enumerate(found, 1):
        if devices.fits(scores.cells(columns)):
            return Fit(_placed(table, fits, columns), reached, tests)
    if next(sets, None) is not None:
        raise BudgetExceeded(f"no answer after {budget} sets of cells", "another host, or fewer guest cells", misfits=misfits, set_tests=len(found))
    if found:
        raise NoFit("devices", "no cells with room are near enough to the wanted devices", misfits, len(found))
    raise NoFit("networks", f"no cells with room are local to {' and '.join(groups)}", misfits)


def _check_room(fits: Sequence[Sequence[bool]], order: Sequence[int], misfits: Misfits) -> None:
    """Whether there is room, wherever devices and networks may be.

    :raises NoFit: there is none.
    """
    for row, line in enumerate(fits):
        if not any(line):
            raise NoFit("pair", f"guest cell {row} fits no host cell", misfits)
    if match(fits, order) is None:
        raise NoFit("matching", "each guest cell fits some host cell, but not all at once", misfits)


def _placed(table: Sequence[Sequence[PlacedCell | Misfit]], fits: Sequence[Sequence[bool]], columns: Columns) -> tuple[PlacedCell, ...]:
    matching = match(fits, columns) or ()
    return tuple(one for row, column in enumerate(matching) if isinstance(one := table[row][column], PlacedCell))
