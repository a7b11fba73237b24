"""Consumers that go, and nodes that are taken out of service."""

import re

import pytest

from agent.errors import PlacementRefused, PlacementUnreachable
from agent.placement.allocations.change import delete, delete_forced
from agent.placement.allocations.checks import (
    BadRequest,
    ConsumerChanged,
    ForeignProvider,
)
from agent.placement.allocations.host import (
    Decommissioned,
    Released,
    decommission,
)
from agent.placement.allocations.records import of_tree
from tests.support import faults
from tests.support.settled import N0, PF0, SS, C, D, H, R, Scene, record

TWO = {R: {"VCPU": 2}}
VF = {PF0: {"SRIOV_NET_VF": 1}}
AWAY = {H: {"VCPU": 2}}
RACE = faults.answer(409, "placement.concurrent_update")
READ, WRITTEN, TREE = (
    "GET allocations c -> 200",
    "PUT allocations c cg 1 -> 204",
    "GET in_tree=R -> 200",
)
LOOK = [TREE, *(f"GET al {name} -> 200" for name in ("R", "N0", "PF0"))]
BOTTOM_UP = [f"DELETE RP {name} -> 204" for name in ("PF0", "N0", "R")]

pytestmark = pytest.mark.usefixtures("short_waits")


# --- one consumer ---------------------------------------------------------------------------------


def test_a_consumer_that_is_absent_is_not_written(scene: Scene) -> None:
    assert not delete(scene.client, C)
    assert scene.seen() == [READ]
    scene.settled()


def test_a_consumer_is_deleted_at_its_generation(scene: Scene) -> None:
    scene.given((C, {**TWO, **AWAY}), (D, TWO))
    assert delete(scene.client, C)
    assert scene.seen() == [READ, WRITTEN]
    scene.settled({C: None}, {R: 1, H: 1})


def test_a_consumer_that_changes_is_deleted_as_it_is_then_four_times_at_most(scene: Scene) -> None:
    scene.given((C, TWO))
    scene.placement.faults.add(faults.before(lambda _: scene.other.claim(AWAY, C)), method="PUT")
    assert delete(scene.client, C)
    assert scene.seen() == [
        READ,
        "PUT allocations c cg 1 -> 409",
        READ,
        "PUT allocations c cg 2 -> 204",
    ]
    scene.settled({C: None}, {H: 2})
    scene.given((C, TWO))
    scene.placement.faults.add(RACE, method="PUT", times=None)
    with pytest.raises(ConsumerChanged):
        delete(scene.client, C)
    assert scene.placement.count("PUT") == 4
    scene.settled()


@pytest.mark.parametrize("applied", [True, False])
def test_a_delete_whose_answer_was_lost(scene: Scene, applied: bool) -> None:
    scene.given((C, TWO))
    scene.placement.faults.add(faults.read_timeout(applied=applied), method="PUT")
    if applied:
        assert delete(scene.client, C)
        scene.settled({C: None}, {R: 1})
    else:
        with pytest.raises(PlacementUnreachable):
            delete(scene.client, C)
        scene.settled()
    assert scene.placement.count("PUT") == 1


def test_a_forced_delete_moves_no_generation_and_is_seen_only_by_reading(scene: Scene) -> None:
    scene.given((C, {**TWO, **VF}))
    assert set(of_tree(scene.client, R).consumers) == {C}
    scene.placement.clear()
    assert delete_forced(scene.client, C)
    assert scene.seen() == ["DELETE allocations c -> 204"]
    assert scene.placement.requests[0].version == "1.23"
    assert of_tree(scene.client, R).consumers == {}, (
        "whoever trusts the generations would still see it"
    )
    scene.settled({C: None})
    assert not delete_forced(scene.client, C)


@pytest.mark.parametrize(
    "lost",
    [faults.read_timeout(applied=True), faults.read_timeout(), faults.html(502, applied=True)],
)
def test_a_forced_delete_is_repeated_when_its_answer_was_lost(
    scene: Scene, lost: faults.Action
) -> None:
    scene.given((C, TWO))
    scene.placement.faults.add(lost, method="DELETE")
    assert delete_forced(scene.client, C)
    assert scene.placement.count() == 2
    scene.settled({C: None})


def test_a_forced_delete_that_the_account_may_not_send_is_sent_once(scene: Scene) -> None:
    scene.given((C, TWO))
    scene.placement.faults.add(faults.answer(401), method="DELETE", times=None)
    with pytest.raises(PlacementRefused, match="401"):
        delete_forced(scene.client, C)
    assert scene.placement.count() == 1


@pytest.mark.parametrize("operation", [delete, delete_forced])
def test_only_a_uuid_is_deleted(scene: Scene, operation: object) -> None:
    with pytest.raises(BadRequest, match=re.escape("'c/../d' is no uuid")):
        operation(scene.client, "c/../d")  # type: ignore[operator]
    assert scene.seen() == []


# --- a node ---------------------------------------------------------------------------------------


def settled_without_the_node(
    scene: Scene, consumers: dict[str, object], moved: dict[str, int] | None = None
) -> None:
    """R and all below it are gone, and everything else is as the scene checks it."""
    for uuid in (R, N0, PF0):
        del scene.before["providers"][uuid]
    scene.settled(consumers, moved)  # type: ignore[arg-type]


def test_consumers_let_go_of_the_node_and_its_tree_goes_from_the_bottom(scene: Scene) -> None:
    scene.given((C, {**TWO, **VF, **AWAY, SS: {"DISK_GB": 10}}), (D, TWO))
    result = decommission(scene.client, R, known=[C, D])
    assert result == Decommissioned(Released({C: 2, D: 1}, {}), [PF0, N0, R], {}, {})
    assert result.complete
    assert scene.seen() == [
        *LOOK,
        READ,
        WRITTEN,
        "GET allocations d -> 200",
        "PUT allocations d cg 1 -> 204",
        *BOTTOM_UP,
    ]
    settled_without_the_node(
        scene, {C: record({**AWAY, SS: {"DISK_GB": 10}}, 2), D: None}, {H: 1, SS: 1}
    )
    # The same again is a success.
    scene.begin()
    assert decommission(scene.client, R, known=[C, D]) == Decommissioned(
        Released({C: 0, D: 0}, {}), [], {}, {}
    )
    assert scene.seen() == [TREE]
    scene.settled()


def test_what_somebody_else_made_stays_with_all_above_it(scene: Scene) -> None:
    scene.given((C, TWO))
    result = decommission(scene.client, R, known=[C], owned={R, PF0})
    assert (result.deleted, list(result.kept)) == ([PF0], [N0, R])
    assert isinstance(result.kept[N0], ForeignProvider)
    assert scene.placement.count("DELETE") == 1


def test_a_child_or_a_consumer_that_came_meanwhile(scene: Scene) -> None:
    scene.placement.faults.add(
        faults.before(lambda _: scene.other.create_provider("new", parent=N0)),
        method="DELETE",
        path=N0,
    )
    result = decommission(scene.client, R, known=[])
    assert (result.deleted, list(result.kept)) == ([PF0], [N0, R])
    assert "got a child meanwhile" in result.kept[N0].message
    scene.placement.faults.add(
        faults.before(lambda _: scene.other.claim({H: {"VCPU": 1}}, C)), method="DELETE", path=H
    )
    result = decommission(scene.client, H, known=[])
    assert (result.deleted, list(result.kept)) == ([], [H])
    assert "came meanwhile" in result.kept[H].message


@pytest.mark.parametrize("applied", [True, False])
def test_a_provider_whose_delete_was_not_answered_is_deleted_once_more(
    scene: Scene, applied: bool
) -> None:
    scene.placement.faults.add(faults.cut(applied=applied), method="DELETE", path=N0)
    assert decommission(scene.client, R, known=[]).deleted == [PF0, N0, R]
    assert scene.placement.count("DELETE") == 4
    settled_without_the_node(scene, {})


def test_a_consumer_that_cannot_let_go_does_not_keep_the_others(scene: Scene) -> None:
    scene.given((C, TWO), (D, {**VF, **AWAY}))
    scene.placement.faults.add(faults.answer(503), method="PUT", path=C, times=None)
    result = decommission(scene.client, R, known=[C, D])
    assert (result.released.done, set(result.released.failed)) == ({D: 1}, {C})
    assert (result.deleted, set(result.kept), result.unknown, result.complete) == (
        [PF0, N0],
        {R},
        {},
        False,
    )


def test_bad_input_is_refused_before_any_request(scene: Scene) -> None:
    for wrong in (
        {"root": "R", "known": []},
        {"root": R, "known": ["c"]},
        {"root": R, "known": [], "evacuated": ["c"]},
    ):
        with pytest.raises(BadRequest, match="is no uuid"):
            decommission(scene.client, **wrong)  # type: ignore[arg-type]
    assert scene.seen() == []
