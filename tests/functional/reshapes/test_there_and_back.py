"""Each reshape and the way back, undisturbed: everybody keeps what he has, where it belongs now, by
one request and no more than have to be.
"""

from collections import Counter
from collections.abc import Mapping

import pytest

from tests.functional.reshapes.cases import (
    ALL_AT_ONCE,
    FEW,
    MANY,
    MORE,
    REQUIRED,
    Case,
    States,
    ways,
)
from tests.functional.reshapes.reshape_host import PAGES, Layout, ReshapeHost
from tests.support.agent import ROOT
from tests.support.placement import PlacementServer

TOLD = {"VCPU", "PCPU", "MEMORY_MB", "DISK_GB", PAGES}
SHARING = 5
"""Requests about a storage: who shares, the three things that it has, and what is used of it."""


def stocked(placement: PlacementServer) -> dict[str, bool]:
    """The providers of the node's tree, and whether they have any inventory."""
    dump = placement.dump()["providers"]
    return {
        one["uuid"]: bool(dump[one["uuid"]]["inventories"]) for one in placement.other.tree(ROOT)
    }


def usages(placement: PlacementServer) -> dict[str, Counter[str]]:
    """What is allocated of each provider of the node's tree."""
    found = {uuid: Counter[str]() for uuid in stocked(placement)}
    for consumer in placement.dump()["consumers"].values():
        for uuid in found.keys() & consumer["allocations"].keys():
            found[uuid].update(consumer["allocations"][uuid])
    return found


def counted(used: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """What of it the records tell of a guest, whatever devices it has."""
    kept = {
        uuid: {name: amount for name, amount in one.items() if name in TOLD and amount}
        for uuid, one in used.items()
    }
    return {uuid: one for uuid, one in kept.items() if one}


def moves(host: ReshapeHost, goal: Layout) -> None:
    before, starts = stocked(host.placement), host.layout
    report = host.start(goal).once()
    assert (report.state, report.attempts, report.errors, report.drift) == ("changed", 1, (), ())
    assert host.held() == host.wanted(goal)
    after, sharing = stocked(host.placement), SHARING if starts.shared or goal.shared else 0
    made, dropped = len(after.keys() - before.keys()), len(before.keys() - after.keys())
    assert (
        host.placement.count()
        <= len(host.holders) + sum(before.values()) + 2 * made + dropped + 4 + sharing
    )
    assert len([one for one in host.placement.requests if one.path == "/reshaper"]) == 1
    host.placement.clear()
    report = host.start().once()
    assert (report.state, host.placement.count()) == ("in-sync", 1)
    assert counted(report.used) == counted(usages(host.placement))


@pytest.mark.long
@pytest.mark.parametrize("count", [FEW])
@ways(REQUIRED | MORE)
def test_everybody_keeps_what_he_has(
    host: ReshapeHost, goal: Layout, case: Case, count: int, states: States
) -> None:
    moves(host, goal)
    states.keep(case.guests, count, host)


@pytest.mark.long
@pytest.mark.parametrize("count", [MANY])
@ways({"all at once": ALL_AT_ONCE})
def test_a_hundred_consumers_keep_what_they_have(
    host: ReshapeHost, goal: Layout, case: Case, count: int, states: States
) -> None:
    assert len(host.holders) >= count
    moves(host, goal)
    states.keep(case.guests, count, host)
