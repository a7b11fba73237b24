"""Adding to a consumer, taking from it, and having it let go of a tree."""

from collections.abc import Callable
from uuid import NAMESPACE_DNS, uuid5

import pytest

from agent.errors import PlacementRefused, PlacementUnreachable
from agent.placement.allocations.change import (
    Doubling,
    add_resources,
    remove_from_one,
    remove_resources,
    remove_tree,
)
from agent.placement.allocations.checks import (
    BadRequest,
    ConsumerNotFound,
    NegativeResult,
    NotAllocated,
)
from agent.placement.allocations.claim import claim
from tests.support import faults
from tests.support.settled import (
    N0,
    OWNER,
    PF0,
    SS,
    C,
    D,
    H,
    Holdings,
    R,
    Scene,
    record,
    request,
)

TWO = {R: {"VCPU": 2}}
VF = {PF0: {"SRIOV_NET_VF": 1}}
RACE = faults.answer(409, "placement.concurrent_update")
READ, WRITTEN, TREE = (
    "GET allocations c -> 200",
    "PUT allocations c cg 1 -> 204",
    "GET in_tree=R -> 200",
)

pytestmark = pytest.mark.usefixtures("short_waits")


def lines(scene: Scene) -> list[str]:
    """The requests, without what became of them."""
    return [line.partition(" ->")[0] for line in scene.seen()]


def somebody_writes(scene: Scene, holdings: Holdings) -> faults.Action:
    return faults.before(lambda _: scene.other.claim(holdings, C))


# --- adding ---------------------------------------------------------------------------------------


def test_resources_are_added_to_what_is_there(scene: Scene) -> None:
    scene.given((C, TWO))
    add_resources(scene.client, C, VF)
    assert scene.seen() == [READ, WRITTEN]
    scene.settled({C: record({**TWO, **VF}, 2)}, {R: 1, PF0: 1})


@pytest.mark.parametrize("times", [1, 3])
def test_after_a_race_for_a_provider_the_sums_are_not_doubled(scene: Scene, times: int) -> None:
    scene.given((C, TWO))
    scene.placement.faults.add(RACE, method="PUT", times=times)
    add_resources(scene.client, C, {R: {"VCPU": 1}, **VF})
    assert lines(scene) == ["GET allocations c", "PUT allocations c cg 1"] * (times + 1)
    scene.settled({C: record({R: {"VCPU": 3}, **VF}, 2)}, {R: 1, PF0: 1})


def test_after_a_change_of_the_consumer_the_sums_are_of_what_it_has_then(scene: Scene) -> None:
    scene.given((C, TWO))
    scene.placement.faults.add(
        somebody_writes(scene, {R: {"VCPU": 5}, H: {"VCPU": 1}}), method="PUT"
    )
    add_resources(scene.client, C, {R: {"VCPU": 1}})
    assert scene.seen() == [
        READ,
        "PUT allocations c cg 1 -> 409",
        READ,
        "PUT allocations c cg 2 -> 204",
    ]
    scene.settled({C: record({R: {"VCPU": 6}, H: {"VCPU": 1}}, 3)}, {R: 2, H: 2})


def test_two_who_add_the_same_at_once_both_have_it_added(scene: Scene) -> None:
    """The refused one finds exactly what it meant to write, and must not take that for its own."""
    scene.given((C, {**TWO, **VF}))
    scene.placement.faults.add(
        somebody_writes(scene, {**TWO, PF0: {"SRIOV_NET_VF": 2}}), method="PUT"
    )
    add_resources(scene.client, C, VF)
    scene.settled({C: record({**TWO, PF0: {"SRIOV_NET_VF": 3}}, 3)}, {R: 2, PF0: 2})


@pytest.mark.parametrize("applied", [True, False])
def test_an_answer_that_was_lost_is_looked_for_and_nothing_is_added_twice(
    scene: Scene, applied: bool
) -> None:
    scene.given((C, TWO))
    scene.placement.faults.add(faults.read_timeout(applied=applied), method="PUT")
    if applied:
        add_resources(scene.client, C, VF)
    else:
        with pytest.raises(PlacementUnreachable):
            add_resources(scene.client, C, VF)
    assert lines(scene) == ["GET allocations c", "PUT allocations c cg 1", "GET allocations c"]
    if applied:
        scene.settled({C: record({**TWO, **VF}, 2)}, {R: 1, PF0: 1})
    else:
        scene.settled()


def test_nothing_is_added_to_a_consumer_that_nobody_knows(scene: Scene) -> None:
    with pytest.raises(ConsumerNotFound, match=C):
        add_resources(scene.client, C, VF)
    assert scene.seen() == [READ]
    scene.settled()


@pytest.mark.parametrize("change", [add_resources, remove_resources])
def test_nothing_to_add_or_to_take_is_no_request(scene: Scene, change: Callable[..., None]) -> None:
    change(scene.client, C, {})
    assert scene.seen() == []


# --- taking ---------------------------------------------------------------------------------------


def test_a_provider_of_which_nothing_is_left_is_not_written(scene: Scene) -> None:
    scene.given((C, {**TWO, **VF}))
    remove_resources(scene.client, C, VF)
    assert scene.seen() == [READ, WRITTEN]
    assert scene.placement.writes()[0].body["allocations"] == {R: {"resources": {"VCPU": 2}}}
    scene.settled({C: record(TWO, 2)}, {R: 1})


def test_a_consumer_of_which_nothing_is_left_is_gone_and_can_be_claimed_anew(
    scene: Scene,
) -> None:
    scene.given((C, {**TWO, **VF}))
    remove_resources(scene.client, C, {**TWO, **VF})
    assert scene.placement.writes()[0].body["allocations"] == {}
    scene.settled({C: None}, {R: 1, PF0: 1})
    scene.begin()
    claim(scene.client, C, [request(TWO)], OWNER, doubling=Doubling.REFUSE)
    assert scene.seen() == [READ, "PUT allocations c cg null -> 204"]
    scene.settled({C: record(TWO, 1)}, {R: 1})


@pytest.mark.parametrize(
    ("less", "error", "told"),
    [
        ({PF0: {"SRIOV_NET_VF": 2}}, NegativeResult, "has 1 SRIOV_NET_VF"),
        ({**TWO, PF0: {"SRIOV_NET_VF": 2}}, NegativeResult, "2 cannot be taken"),
        ({H: {"VCPU": 1}}, NotAllocated, f"nothing on provider {H}"),
        ({R: {"PCPU": 1}}, NotAllocated, "has no PCPU"),
    ],
)
def test_more_than_there_is_cannot_be_taken(
    scene: Scene, less: Holdings, error: type[Exception], told: str
) -> None:
    scene.given((C, {**TWO, **VF}))
    before = repr(less)
    with pytest.raises(error, match=told):
        remove_resources(scene.client, C, less)
    assert repr(less) == before
    assert scene.seen() == [READ]
    scene.settled()


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (faults.answer(400), BadRequest),
        (faults.answer(403), PlacementRefused),
        (faults.answer(404), PlacementRefused),
        (faults.html(409), PlacementUnreachable),
        (faults.html(404), PlacementUnreachable),
    ],
)
def test_no_refusal_is_taken_for_a_success(
    scene: Scene, fault: faults.Action, error: type[Exception]
) -> None:
    scene.given((C, {**TWO, **VF}))
    scene.placement.faults.add(fault, method="PUT")
    with pytest.raises(error):
        remove_resources(scene.client, C, VF)
    # What became of a write that was answered by somebody else is looked at.
    assert len(scene.seen()) == (3 if error is PlacementUnreachable else 2)
    scene.settled()


# --- a tree ---------------------------------------------------------------------------------------

SPREAD = {R: {"VCPU": 2}, N0: {"CUSTOM_HUGE": 1}, SS: {"DISK_GB": 10}}


def test_a_consumer_lets_go_of_a_tree_and_keeps_what_is_shared(scene: Scene) -> None:
    scene.given((C, SPREAD), (D, SPREAD))
    assert remove_tree(scene.client, C, R) == 2
    assert scene.seen() == [READ, TREE, WRITTEN]
    scene.settled({C: record({SS: {"DISK_GB": 10}}, 2)}, {SS: 1})
    scene.begin()
    assert remove_tree(scene.client, C, R) == 0
    assert scene.seen() == [READ, TREE]
    scene.settled()


def test_what_stands_above_the_node_stays(scene: Scene) -> None:
    """An operator may have put nodes below a provider of his own."""
    rack = scene.other.create_provider("rack")
    scene.other.set_inventory(rack, {"CUSTOM_POWER": 10})
    for node in (R, H):
        scene.other.reparent(node, rack)
    scene.given((C, {**TWO, **VF, H: {"VCPU": 1}, rack: {"CUSTOM_POWER": 1}}))
    assert remove_tree(scene.client, C, R) == 2
    scene.settled({C: record({H: {"VCPU": 1}, rack: {"CUSTOM_POWER": 1}}, 2)}, {H: 1, rack: 1})


def test_of_many_nodes_only_the_trees_are_asked_for_that_the_consumer_is_on(
    scene: Scene,
) -> None:
    rack = scene.other.create_provider("rack")
    for node in (R, H):
        scene.other.reparent(node, rack)
    scene.given((C, {**SPREAD, H: {"VCPU": 1}}))
    assert (
        remove_from_one(
            scene.client,
            C,
            [str(uuid5(NAMESPACE_DNS, f"node-{number}")) for number in range(1000)] + [R],
        )
        == 2
    )
    assert sorted(lines(scene)[1:-1]) == ["GET in_tree=R", "GET in_tree=SS"]
    scene.settled({C: record({SS: {"DISK_GB": 10}, H: {"VCPU": 1}}, 2)}, {SS: 1, H: 1})


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda client: add_resources(client, "x", VF), "consumer 'x' is no uuid"),
        (
            lambda client: add_resources(
                client, C, {PF0: {"SRIOV_NET_VF": -1}, "PF0": {"VCPU": 2**31}}
            ),
            "'-1' of 'SRIOV.*'PF0' is no uuid.*'2147483648'",
        ),
        (lambda client: add_resources(client, C, {PF0: {"SRIOV_NET_VF": True}}), "'True'"),
        (lambda client: remove_resources(client, C, {PF0: {}}), "nothing is named of provider"),
        (
            lambda client: remove_resources(client, C, {PF0: {"sriov": 1}}),
            "'sriov' is no resource class",
        ),
        (lambda client: remove_tree(client, C, "node\n"), r"provider 'node\\n' is no uuid"),
    ],
)
def test_bad_input_is_refused_before_any_request(
    scene: Scene, wrong: Callable[..., object], told: str
) -> None:
    with pytest.raises(BadRequest, match=told):
        wrong(scene.client)
    assert scene.seen() == []
