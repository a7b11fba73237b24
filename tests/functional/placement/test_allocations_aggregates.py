"""Hosts that come into aggregates and leave them."""

import uuid
from collections.abc import Callable

import pytest

from agent.errors import PlacementRefused, PlacementUnreachable
from agent.placement.allocations.checks import BadRequest, ProviderNotFound
from agent.placement.allocations.host import add_host, remove_host
from tests.support import faults
from tests.support.settled import A, R, Scene

B, OURS = (str(uuid.uuid4()) for _ in range(2))
READ = "GET ag R -> 200"

pytestmark = pytest.mark.usefixtures("short_waits")


def generation(scene: Scene) -> int:
    found: int = scene.before["providers"][R]["generation"]
    return found


def settled(scene: Scene, *aggregates: str, moved: int = 1) -> None:
    """R is in these aggregates, and nothing else has changed."""
    scene.before["providers"][R]["aggregates"] = sorted(aggregates)
    scene.settled({}, {R: moved})


def test_a_host_is_added_by_its_name_and_taken_away_by_its_uuid(scene: Scene) -> None:
    g = generation(scene)
    assert add_host(scene.client, OURS.upper(), host="R")
    assert scene.seen() == ["GET name=R -> 200", READ, f"PUT ag R g{g} -> 200"]
    settled(scene, A, OURS)
    scene.begin()
    assert remove_host(scene.client, OURS, provider=R.upper())
    assert scene.seen() == [READ, f"PUT ag R g{g + 1} -> 200"]
    settled(scene, A)


def test_what_is_so_already_is_not_written(scene: Scene) -> None:
    assert not add_host(scene.client, A, provider=R)
    assert not remove_host(scene.client, OURS, provider=R)
    assert scene.seen() == [READ, READ]
    scene.settled()


@pytest.mark.parametrize(("operation", "left"), [(add_host, {A, B, OURS}), (remove_host, {B})])
def test_after_a_race_others_memberships_survive(
    scene: Scene, operation: Callable[..., bool], left: set[str]
) -> None:
    mine, g = (OURS if operation is add_host else A), generation(scene)
    scene.placement.faults.add(
        faults.before(lambda _: scene.other.set_aggregates(R, [A, B])), method="PUT"
    )
    assert operation(scene.client, mine, provider=R)
    assert scene.seen() == [READ, f"PUT ag R g{g} -> 409", READ, f"PUT ag R g{g + 1} -> 200"]
    settled(scene, *left, moved=2)


@pytest.mark.parametrize("applied", [True, False])
def test_an_answer_that_was_lost_is_looked_for(scene: Scene, applied: bool) -> None:
    scene.placement.faults.add(faults.read_timeout(applied=applied), method="PUT")
    if applied:
        assert add_host(scene.client, OURS, provider=R)
        settled(scene, A, OURS)
    else:
        with pytest.raises(PlacementUnreachable):
            add_host(scene.client, OURS, provider=R)
        scene.settled()
    assert scene.placement.count("PUT") == 1


def test_a_host_that_is_unknown_is_told_from_an_outage(scene: Scene) -> None:
    for unknown in ({"host": "nobody"}, {"host": "r"}, {"provider": B}):
        with pytest.raises(ProviderNotFound):
            add_host(scene.client, OURS, **unknown)
    scene.placement.faults.add(faults.answer(503), method="GET", times=None)
    for known in ({"host": "R"}, {"provider": R}):
        with pytest.raises(PlacementRefused):
            add_host(scene.client, OURS, **known)


@pytest.mark.parametrize("operation", [add_host, remove_host])
def test_bad_input_is_refused_before_any_request_as_a_value_error_too(
    scene: Scene, operation: Callable[..., bool]
) -> None:
    for wrong in (
        {},
        {"host": "R", "provider": R},
        {"host": ""},
        {"host": "x" * 201},
        {"provider": "R"},
    ):
        with pytest.raises(BadRequest):
            operation(scene.client, A, **wrong)
    with pytest.raises(ValueError, match="aggregate 'A' is no uuid"):
        operation(scene.client, "A", host="R")
    assert scene.seen() == []
