"""Each reshape and the way back, undisturbed: everybody keeps what he has, where it belongs now, by one request and no more than have to be."""

import pytest

from tests.functional.reshapes.cases import FEW, MANY, MORE, REQUIRED, Case, States, ways
from tests.support.agent import ROOT
from tests.support.placement import PlacementServer
from tests.support.reshape_host import Layout, ReshapeHost

SHARING = 5
"""Requests about a storage: who shares, the three things that it has, and what is used of it."""


def stocked(placement: PlacementServer) -> dict[str, bool]:
    """The providers of the node's tree, and whether they have any inventory."""
    dump = placement.dump()["providers"]
    return {one["uuid"]: bool(dump[one["uuid"]]["inventories"]) for one in placement.other.tree(ROOT)}


def moves(host: ReshapeHost, goal: Layout) -> None:
    before, starts = stocked(host.placement), host.layout
    report = host.start(goal).once()
    assert (report.state, report.attempts, report.errors, report.drift) == ("changed", 1, (), ())
    assert host.held() == host.wanted(goal)
    after, sharing = stocked(host.placement), SHARING if starts.shared or goal.shared else 0
    made, dropped = len(after.keys() - before.keys()), len(before.keys() - after.keys())
    assert host.placement.count() <= len(host.holders) + sum(before.values()) + 2 * made + dropped + 4 + sharing
    assert len([one for one in host.placement.requests if one.path == "/reshaper"]) == 1
    host.placement.clear()
    assert (host.start().once().state, host.placement.count()) == ("in-sync", 1)


@pytest.mark.parametrize("count", [MANY])
@ways(REQUIRED)
def test_a_hundred_consumers_keep_what_they_have(host: ReshapeHost, goal: Layout, case: Case, states: States) -> None:
    assert len(host.holders) == MANY
    moves(host, goal)
    states.keep(case.guests, MANY, host)


@pytest.mark.parametrize("count", [FEW])
@ways(MORE)
def test_several_consumers_keep_what_they_have(host: ReshapeHost, goal: Layout, case: Case, states: States) -> None:
    moves(host, goal)
    states.keep(case.guests, FEW, host)
