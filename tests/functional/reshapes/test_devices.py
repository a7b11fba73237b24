"""R5 once more: shares of devices that are wrong, cards that move with the layout, and the way back
to a tree without them.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.model.operation import Reshape
from agent.placement.allocations.host import Retired, retire
from agent.tree.reported_cards import MARKER, card_of
from tests.functional.reshapes.cases import FEW, REQUIRED, States
from tests.functional.reshapes.reshape_host import VF, ReshapeHost
from tests.support.agent import NAME, ROOT, operations
from tests.support.placement import PlacementServer
from tests.support.settled import client_of

WITH, WITHOUT = REQUIRED["R5"].new, REQUIRED["R5"].old

pytestmark = [pytest.mark.xdist_group("reshapes of floating guests"), pytest.mark.long]


@pytest.fixture
def host(states: States, placement: PlacementServer, tmp_path: Path) -> Iterator[ReshapeHost]:
    """A host whose guests have a virtual function each, and Placement knows."""
    found = states.host("floating", WITH, FEW, placement, tmp_path / "state")
    yield found
    found.stop()


def parents(host: ReshapeHost) -> dict[str, str]:
    """Of each card."""
    there = host.placement.dump()["providers"]
    return {
        one["name"]: there[one["parent"]]["name"]
        for one in there.values()
        if MARKER in one["traits"]
    }


def test_shares_that_are_missing_are_made_right_all_at_once(host: ReshapeHost) -> None:
    other, uuids = (
        host.placement.other,
        {one["name"]: uuid for uuid, one in host.placement.dump()["providers"].items()},
    )
    spoiled = Counter[str]()
    for consumer, held in host.wanted(WITH).items():
        for card in [place for place in held if VF in held[place]]:
            # Of each card one guest has what it should, and others have nothing.
            held[card] = held[card] if spoiled[card] == 1 else {}
            spoiled[card] += 1
        other.claim({uuids[place]: amounts for place, amounts in held.items() if amounts}, consumer)
    assert len(spoiled) == 4 and min(spoiled.values()) > 1
    host.placement.clear()
    report = host.start().once()
    assert (report.state, report.errors, [one.path for one in host.placement.writes()]) == (
        "changed",
        (),
        ["/reshaper"],
    )
    assert host.held() == host.wanted(WITH)
    host.placement.clear()
    assert (host.start().once().state, host.placement.count()) == ("in-sync", 1)


def test_another_layout_moves_cards_and_nothing_of_what_is_held_of_them(host: ReshapeHost) -> None:
    before, held = parents(host), host.held()
    report = host.start(replace(WITH, nested=False)).once()
    assert (report.errors, set(parents(host).values()), host.held()) == ((), {NAME}, held)
    assert not any(one.allocations for one in operations(report) if isinstance(one, Reshape))
    assert host.start(WITH).once().errors == ()
    assert (parents(host), host.held()) == (before, held)
    assert set(before.values()) == {f"{NAME}_NUMA0", f"{NAME}_NUMA1"}


def unreport(host: ReshapeHost) -> Retired:
    """What ``agent pci unreport`` does."""
    return retire(
        client_of(host.placement), ROOT, MARKER, lambda name: card_of(name, NAME) is not None
    )


def test_the_way_back_is_open_once_nobody_holds_any(host: ReshapeHost) -> None:
    before = host.placement.dump()
    report = host.start(WITHOUT).once()
    assert (report.state, [one.code for one in report.errors]) == ("failed", ["config.invalid"])
    assert "agent pci unreport" in report.errors[0].remedy
    assert len(unreport(host).kept) == 4
    assert host.placement.dump() == before
    for consumer in host.held():
        host.placement.other.release(consumer)
    assert len(unreport(host).deleted) == 4
    assert (host.start(WITHOUT).once().errors, parents(host)) == ((), {})
