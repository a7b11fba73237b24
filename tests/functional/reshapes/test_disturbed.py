"""Each reshape and the way back while others act, answers are lost and the agent is killed: at the
end everybody has what he should have.
"""

from pathlib import Path
from typing import Any

import pytest

from agent.model.report import NodeReport
from tests.functional.reshapes.cases import (
    ALL_AT_ONCE,
    FEW,
    MANY,
    REQUIRED,
    Case,
    States,
    beside,
    ways,
)
from tests.functional.reshapes.reshape_host import (
    FLOATING,
    LATER,
    PINNED,
    SHARED,
    Layout,
    ReshapeHost,
)
from tests.support import faults
from tests.support.agent import NAME
from tests.support.crashes import Crash, crash
from tests.support.faults import Rule
from tests.support.placement import PlacementServer

pytestmark = pytest.mark.long

THE_RESHAPE = {"method": "POST", "path": "^/reshaper"}
CONFLICT = faults.answer(409, "placement.concurrent_update")
GONE = (1, 2)
"""The numbers of guests that are deleted meanwhile."""


def settled(host: ReshapeHost, goal: Layout) -> None:
    """A new process has nothing to do any more, and everybody has what he should have."""
    assert host.held() == host.wanted(goal)
    host.placement.clear()
    report = host.start(goal).once()
    assert (report.state, report.errors, host.placement.writes()) == ("in-sync", (), [])
    assert host.held() == host.wanted(goal)


def arrival(host: ReshapeHost, goal: Layout, case: Case, number: int = LATER[0]) -> Any:
    """A guest that comes while the agent is about to move the others: its allocation is where they
    are still.
    """
    old, placed = host.layout, PINNED if goal.sets else SHARED
    flavor = FLOATING if case.guests == "floating" else placed
    return lambda _exchange: host.arrive(number, flavor, old)


def met(host: ReshapeHost, *actions: faults.Action, times: int | None = 1) -> list[Rule]:
    """Have the first reshape meet the first action, and so on."""
    return [host.placement.faults.add(one, times=times, **THE_RESHAPE) for one in actions]


# All at once moves a hundred in any run, see test_there_and_back.
@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    "case", [pytest.param(case, id=name, marks=beside(case)) for name, case in REQUIRED.items()]
)
def test_consumers_through_conflicts_deletions_arrivals_and_kills(
    case: Case, count: int, states: States, placement: PlacementServer, tmp_path: Path
) -> None:
    first, *ways = [case.ends(way) for way in ("back", "there") if way == "there" or case.back]
    host = states.host(case.guests, first[0], count, placement, tmp_path / "state")
    for (_, goal), gone, number in zip([first, *ways], GONE, LATER, strict=False):
        through_everything(host, goal, gone, arrival(host, goal, case, number))
    host.stop()


def through_everything(host: ReshapeHost, goal: Layout, gone: int, came: Any) -> None:
    """Somebody goes and somebody comes, which is a conflict; then the agent is killed when
    Placement has done what it asked.
    """

    def meanwhile(exchange: Any) -> None:
        host.vanish(gone)
        came(exchange)

    rules = met(host, faults.before(meanwhile), faults.after(crash))
    with pytest.raises(Crash):
        host.start(goal).once()
    assert [rule.hits for rule in rules] == [1, 1]
    assert len(host.holders) >= FEW
    report = host.start(goal).once()
    assert report.errors == ()
    settled(host, goal)


all_at_once = ways({"all at once": ALL_AT_ONCE})
few = pytest.mark.parametrize("count", [FEW])


def once(host: ReshapeHost, goal: Layout, *actions: faults.Action) -> NodeReport:
    """One start that meets them, to its end."""
    rules = met(host, *actions)
    report = host.start(goal).once()
    assert [rule.hits for rule in rules] == [1] * len(actions)
    return report


@few
@all_at_once
@pytest.mark.parametrize(
    "lost",
    [faults.cut(), faults.cut(applied=True), CONFLICT],
    ids=["cut", "cut when it was done", "conflict"],
)
def test_what_was_not_answered_is_looked_at_and_if_need_be_done_again(
    lost: faults.Action, host: ReshapeHost, goal: Layout
) -> None:
    report = once(host, goal, lost)
    assert (report.state, report.errors, report.attempts) == ("changed", (), 2)
    settled(host, goal)


@few
@all_at_once
def test_four_conflicts_leave_everything_as_it_was_and_the_start_is_refused(
    host: ReshapeHost, goal: Layout
) -> None:
    before, held, old = host.placement.dump(), host.held(), host.layout
    (rule,) = met(host, CONFLICT, times=None)
    agent = host.start(goal)
    report = agent.cycle(start=True)
    assert (report.state, report.attempts, rule.hits) == ("refused", 4, 4)
    assert [error.code for error in report.errors] == ["reshape.failed"]
    after = host.placement.dump()["providers"]
    assert host.held() == held == host.wanted(old)
    assert {uuid: after[uuid]["inventories"] for uuid in before["providers"]} == {
        uuid: one["inventories"] for uuid, one in before["providers"].items()
    }
    # It stays refused while the process runs, whatever Placement says by then.
    host.placement.faults.clear()
    host.placement.clear()
    assert (agent.cycle().state, host.placement.writes()) == ("refused", [])
    assert host.start(goal).once().errors == ()
    settled(host, goal)


@few
@all_at_once
def test_an_agent_that_is_killed_after_each_of_its_writes_arrives_all_the_same(
    host: ReshapeHost, goal: Layout
) -> None:
    old = host.layout
    host.placement.faults.add(
        faults.after(lambda exchange: crash() if exchange.is_write else None), times=None
    )
    kills = 0
    while True:
        try:
            report = host.start(goal, asking=True).once()
        except Crash:
            kills += 1
            assert kills < 20
            assert host.held() in (host.wanted(goal), host.wanted(old))
        else:
            break
    assert (report.state, report.errors) == ("in-sync", ())
    # The reshape itself is one of them; before it come new providers, after it traits and what is
    # empty now.
    assert kills > 5
    settled(host, goal)


@few
@all_at_once
def test_a_placement_that_is_away_puts_it_off_to_the_next_pass_of_the_same_process(
    host: ReshapeHost, goal: Layout
) -> None:
    held = host.held()
    (rule,) = met(host, faults.answer(503))
    agent = host.start(goal, asking=True)
    assert (agent.cycle(start=True).state, rule.hits, host.held()) == ("degraded", 1, held)
    assert agent.cycle(start=True).errors == ()
    settled(host, goal)


@few
@pytest.mark.parametrize(
    ("case", "way"),
    [pytest.param(ALL_AT_ONCE, "there", marks=beside(ALL_AT_ONCE))],
    ids=["all at once"],
)
def test_a_cell_whose_name_is_somebody_elses_puts_it_off_until_that_is_mended(
    host: ReshapeHost, goal: Layout
) -> None:
    held, other = host.held(), host.placement.other
    theirs = other.create_provider(f"{NAME}_NUMA1")
    agent = host.start(goal, asking=True)
    assert (agent.cycle(start=True).state, host.held()) == ("degraded", held)
    other.delete_provider(theirs)
    assert agent.cycle(start=True).errors == ()
    settled(host, goal)
