"""Whatever is repeated pauses before each repetition. The pauses are counted, not waited for."""

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from agent.errors import PlacementError
from agent.model.inventory import Allocation
from agent.placement import exchange
from agent.placement.allocations.change import (
    Doubling,
    add_resources,
    delete,
    remove_from_one,
    remove_resources,
    remove_tree,
)
from agent.placement.allocations.claim import claim, move, put
from agent.placement.allocations.host import add_host, decommission, remove_host
from agent.placement.allocations.records import usages_for_limits
from tests.functional.placement.conftest import Host
from tests.support import faults
from tests.support.agent import shaped, total
from tests.support.placement import PROJECT, USER, PlacementServer
from tests.support.service_manager import Waits
from tests.support.settled import OWNER, A, C, D, M, R, Scene, request

ONE, TWO = {R: {"VCPU": 1}}, {R: {"VCPU": 2}}
RACE = faults.answer(409, "placement.concurrent_update")
ANOTHER = "7c5d1a10-6f4d-4a0e-8c63-5a8e0a2b9a12"
# How often it was tried before each pause, and the longest that the pause may be, in seconds.
PAUSES = [(1, 0.5), (2, 1.0), (3, 2.0)]

Operation = Callable[[Scene], object]

OPERATIONS: dict[str, Operation] = {
    "claim": lambda scene: claim(scene.client, D, [request(TWO)], OWNER, doubling=Doubling.REFUSE),
    "put": lambda scene: put(scene.client, Allocation(D, TWO, PROJECT, USER, None)),
    "move": lambda scene: move(scene.client, C, M, expected=None),
    "add resources": lambda scene: add_resources(scene.client, C, ONE),
    "remove resources": lambda scene: remove_resources(scene.client, C, ONE),
    "remove a tree": lambda scene: remove_tree(scene.client, C, R),
    "remove the one tree of some": lambda scene: remove_from_one(scene.client, C, [R]),
    "delete": lambda scene: delete(scene.client, C),
    "decommission": lambda scene: decommission(scene.client, R, known=[C]),
    "add a host to an aggregate": lambda scene: add_host(scene.client, ANOTHER, provider=R),
    "remove a host from an aggregate": lambda scene: remove_host(scene.client, A, provider=R),
}


@pytest.fixture
def longest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait is the longest that it may be."""
    monkeypatch.setattr(
        exchange, "random", SimpleNamespace(uniform=lambda _least, longest: longest)
    )


def pauses(scene: Scene, method: str) -> list[tuple[int, float]]:
    """Have ``scene`` note each pause: how many requests of ``method`` were answered
    before, and for how many seconds.
    """
    noted: list[tuple[int, float]] = []

    def note() -> None:
        noted.append((scene.placement.count(method), waits.seconds[-1] or 0.0))

    scene.cancelled = waits = Waits(note)
    return noted


@pytest.mark.usefixtures("longest")
@pytest.mark.parametrize(
    ("name", "conflicts"),
    [
        *((name, 3) for name in OPERATIONS),
        *((name, None) for name in OPERATIONS if name != "decommission"),
    ],
)
def test_an_operation_pauses_before_each_repetition_after_a_conflict(
    name: str, conflicts: int | None, scene: Scene
) -> None:
    """``conflicts``: their number; None for one at every attempt, of which the last is followed by
    no pause.
    """
    scene.given((C, TWO))
    method = "POST" if name == "move" else "PUT"
    scene.placement.faults.add(RACE, method=method, times=conflicts)
    noted = pauses(scene, method)
    with nullcontext() if conflicts else pytest.raises(PlacementError):
        OPERATIONS[name](scene)
    assert (noted, scene.placement.count(method)) == (PAUSES, 4)


@pytest.mark.usefixtures("longest")
def test_usages_are_asked_for_again_after_the_same_pauses(scene: Scene) -> None:
    scene.placement.faults.add(faults.html(503), method="GET", times=3)
    noted = pauses(scene, "GET")
    assert usages_for_limits(scene.client, PROJECT) == {}
    assert (noted, scene.placement.count("GET")) == (PAUSES, 4)


@pytest.mark.usefixtures("longest")
def test_a_pass_pauses_before_each_repetition_after_a_conflict(
    host: Host, placement: PlacementServer
) -> None:
    agent = host(shaped({"VCPU": total(16)}))
    noted: list[int] = []
    agent.cancelled = waits = Waits(lambda: noted.append(placement.count("PUT")))
    agent.once()
    agent.driver.script = shaped({"VCPU": total(12)})
    placement.faults.add(RACE, method="PUT", path="/inventories$", times=3)
    placement.clear()
    assert agent.once().state == "changed"
    assert (noted, waits.seconds) == ([1, 2, 3], [0.4, 1.6, exchange.LONGEST_WAIT])
