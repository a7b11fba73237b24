"""All that one consumer holds becomes another's."""

from collections.abc import Callable
from typing import Any

import pytest

from agent.errors import PlacementUnreachable
from agent.placement.allocations.checks import (
    BadRequest,
    ConsumerChanged,
    NothingToMove,
    TargetBusy,
)
from agent.placement.allocations.claim import Moved, move
from tests.support import faults
from tests.support.settled import SS, C, D, H, Holdings, M, R, Scene, record

HELD = {R: {"VCPU": 2}, SS: {"DISK_GB": 10}}
OTHER = {H: {"VCPU": 1}}
RACE = faults.answer(409, "placement.concurrent_update")
READ = ["GET allocations c -> 200", "GET allocations m -> 200"]
POST = "POST allocations c cg 1, m cg null"
BUMPED = {R: 1, SS: 1}

pytestmark = pytest.mark.usefixtures("short_waits")


def moved(scene: Scene, expected: Holdings | None = None, **more: Any) -> Moved:
    return move(scene.client, C, M, expected=expected, **more)


def test_one_request_gives_all_to_the_target(scene: Scene) -> None:
    scene.given((C, HELD), (D, OTHER))
    assert moved(scene) == Moved(HELD, already=False)
    assert scene.seen() == [*READ, f"{POST} -> 204"]
    scene.settled({C: None, M: record(HELD, 1)}, BUMPED)


def test_what_was_moved_before_is_recognised_by_what_was_expected(scene: Scene) -> None:
    scene.given((C, HELD))
    moved(scene)
    scene.begin()
    assert moved(scene, HELD) == Moved(HELD, already=True)
    assert scene.seen() == READ
    scene.settled()


@pytest.mark.parametrize("expected", [None, OTHER])
def test_whatever_else_the_target_holds_is_not_taken_for_it(
    scene: Scene, expected: Holdings | None
) -> None:
    scene.given((M, HELD))
    with pytest.raises(NothingToMove):
        moved(scene, expected)
    assert scene.seen() == READ
    scene.settled()


@pytest.mark.parametrize("expected", [None, HELD])
def test_nothing_is_not_moved_because_it_would_leave_a_phantom(
    scene: Scene, expected: Holdings | None
) -> None:
    with pytest.raises(NothingToMove, match="holds nothing either"):
        moved(scene, expected)
    assert scene.seen() == READ
    scene.settled()


@pytest.mark.parametrize(
    "lost", [faults.read_timeout(applied=True), faults.html(504, applied=True)]
)
def test_a_move_whose_answer_was_lost_is_looked_for(scene: Scene, lost: faults.Action) -> None:
    scene.given((C, HELD))
    scene.placement.faults.add(lost, method="POST")
    assert moved(scene) == Moved(HELD, already=False)
    assert [line.partition(" ->")[0] for line in scene.seen()] == [
        line.partition(" ->")[0] for line in (*READ, POST, *READ)
    ]
    scene.settled({C: None, M: record(HELD, 1)}, BUMPED)


def test_a_move_that_was_not_applied_raises_what_happened_to_it(scene: Scene) -> None:
    scene.given((C, HELD))
    scene.placement.faults.add(faults.cut(), method="POST")
    with pytest.raises(PlacementUnreachable):
        moved(scene)
    assert scene.placement.count("POST") == 1
    scene.settled()


def test_a_race_for_a_provider_begins_with_reading_both_again(scene: Scene) -> None:
    scene.given((C, HELD), (M, OTHER))
    scene.placement.faults.add(RACE, method="POST")
    moved(scene, overwrite=True)
    assert scene.seen() == [
        *READ,
        "POST allocations c cg 1, m cg 1 -> 409",
        *READ,
        "POST allocations c cg 1, m cg 1 -> 204",
    ]
    scene.settled({C: None, M: record(HELD, 2)}, BUMPED)


@pytest.mark.parametrize("who", [C, M])
def test_a_consumer_that_changed_is_not_written(scene: Scene, who: str) -> None:
    scene.given((C, HELD))
    scene.placement.faults.add(
        faults.before(lambda _: scene.other.claim(OTHER, who)), method="POST"
    )
    with pytest.raises((ConsumerChanged, TargetBusy)):
        moved(scene)
    assert scene.seen() == [*READ, f"{POST} -> 409", *READ]
    scene.settled({who: record(OTHER, 2 if who == C else 1)}, {H: 1})


def test_somebody_else_who_made_the_same_move_is_as_good(scene: Scene) -> None:
    scene.given((C, HELD))

    def the_same(_: object) -> None:
        scene.other.release(C)
        scene.other.claim(HELD, M)

    scene.placement.faults.add(faults.before(the_same), method="POST")
    assert moved(scene) == Moved(HELD, already=True)
    scene.settled({C: None, M: record(HELD, 1)}, BUMPED)


def test_what_the_target_holds_is_lost_only_if_that_is_said(scene: Scene) -> None:
    scene.given((C, HELD), (M, OTHER))
    with pytest.raises(TargetBusy, match=M):
        moved(scene)
    assert scene.seen() == READ
    scene.settled()
    assert moved(scene, overwrite=True).resources == HELD
    scene.settled({C: None, M: record(HELD, 2)}, BUMPED)


def test_the_owner_is_the_sources_unless_another_is_given(scene: Scene) -> None:
    scene.given((C, HELD))
    move(scene.client, C, M, expected=None, project_id="theirs", user_id="them")
    scene.settled({C: None, M: record(HELD, 1, "theirs", "them")}, BUMPED)
    move(scene.client, M, C, expected=None, user_id="me")
    scene.settled({M: None, C: record(HELD, 1, "theirs", "me")}, {R: 2, SS: 2})


@pytest.mark.parametrize("kind", ["INSTANCE", None])
def test_the_type_of_the_source_goes_along(scene: Scene, kind: str | None) -> None:
    scene.given((C, HELD))
    if kind:
        held = scene.client.allocation(C)
        assert held is not None
        scene.client.set_allocation(C, {**held.as_body(), "consumer_type": kind}, "1.38")
    moved(scene, typed=True)
    arrived = scene.client.allocation(M, "1.38")
    assert arrived is not None
    assert (arrived.resources, arrived.consumer_type) == (HELD, kind)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda client: move(client, "c", M, expected=None), "source 'c' is no uuid"),
        (lambda client: move(client, C, "m", expected=None), "target 'm' is no uuid"),
        (lambda client: move(client, C, C.upper(), expected=None), "source and target are both"),
        (lambda client: move(client, C, M, expected={R: {"VCPU": 0}}), "the amount '0'"),
        (lambda client: move(client, C, M, expected=None, project_id=""), "the project's id ''"),
    ],
)
def test_bad_input_is_refused_before_any_request(
    scene: Scene, wrong: Callable[..., object], told: str
) -> None:
    with pytest.raises(BadRequest, match=told):
        wrong(scene.client)
    assert scene.seen() == []
