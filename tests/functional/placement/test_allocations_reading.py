"""Reading who holds what, and providers by name and uuid."""

from collections.abc import Callable

import pytest

from agent.errors import PlacementRefused, PlacementUnreachable
from agent.placement.allocations.checks import BadRequest, ProviderNotFound
from agent.placement.allocations.records import (
    of_tree,
    provider_by,
    provider_by_name,
    read_consumer,
)
from agent.placement.client import PlacementClient
from tests.support import faults
from tests.support.placement import PROJECT, USER
from tests.support.settled import PF0, C, D, H, M, R, Scene

UNKNOWN = "5f9c2a34-7d1e-4a8b-9c46-0000000000ff"
SPREAD = {R: {"VCPU": 2}, PF0: {"SRIOV_NET_VF": 1}, H: {"VCPU": 1}}

pytestmark = pytest.mark.usefixtures("short_waits")


def test_a_consumer_is_read_whole(scene: Scene) -> None:
    scene.given((C, SPREAD))
    held = read_consumer(scene.client, C.upper())
    assert held is not None
    assert (held.consumer, held.resources, held.project_id, held.user_id, held.generation) == (
        C,
        SPREAD,
        PROJECT,
        USER,
        1,
    )
    assert read_consumer(scene.client, D) is None
    assert {one.version for one in scene.placement.requests} == {"1.28"}


def test_a_trees_consumers_are_read_with_all_that_they_hold(scene: Scene) -> None:
    scene.given((C, SPREAD), (D, {PF0: {"SRIOV_NET_VF": 1}}), (M, {H: {"VCPU": 1}}))
    found = of_tree(scene.client, R).consumers
    assert {consumer: one.resources for consumer, one in found.items()} == {
        C: SPREAD,
        D: {PF0: {"SRIOV_NET_VF": 1}},
    }
    assert scene.seen() == [
        "GET in_tree=R -> 200",
        *(f"GET al {name} -> 200" for name in ("R", "N0", "PF0")),
        *(f"GET allocations {one} -> 200" for one in "cd"),
    ]
    assert of_tree(scene.client, UNKNOWN).consumers == {}
    scene.settled()


def test_a_consumer_that_lets_go_between_the_readings_is_left_out(scene: Scene) -> None:
    scene.given((C, SPREAD), (D, SPREAD))
    scene.placement.faults.add(
        faults.before(lambda _: scene.other.release(C)), method="GET", path=C
    )
    assert set(of_tree(scene.client, R).consumers) == {D}


@pytest.mark.parametrize("name", ["rack 7/a&b#c+d", "cn&uuid=" + R, "größe 100%"])
def test_a_provider_is_found_by_the_very_name(scene: Scene, name: str) -> None:
    uuid = scene.other.create_provider(name)
    assert provider_by_name(scene.client, name).uuid == provider_by(scene.client, name).uuid == uuid
    for other in (name + "x", name[:-1]):
        with pytest.raises(ProviderNotFound):
            provider_by_name(scene.client, other)


def test_a_provider_may_be_meant_by_its_uuid(scene: Scene) -> None:
    assert provider_by(scene.client, R.upper()).name == "R"
    with pytest.raises(ProviderNotFound, match=UNKNOWN):
        provider_by(scene.client, UNKNOWN)


@pytest.mark.parametrize(
    "fault", [faults.answer(500), faults.answer(503), faults.refused(), faults.html(200)]
)
def test_an_outage_is_not_taken_for_a_provider_that_is_not_there(
    scene: Scene, fault: faults.Action
) -> None:
    scene.placement.faults.add(fault, times=None)
    asked: tuple[Callable[[PlacementClient], object], ...] = (
        lambda client: provider_by_name(client, "R"),
        lambda client: provider_by(client, R),
        lambda client: read_consumer(client, C),
        lambda client: of_tree(client, R),
    )
    for ask in asked:
        with pytest.raises((PlacementRefused, PlacementUnreachable)):
            ask(scene.client)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda client: read_consumer(client, "../usages"),
        lambda client: of_tree(client, "R"),
        lambda client: provider_by_name(client, ""),
    ],
)
def test_bad_input_is_refused_before_any_request(
    scene: Scene, wrong: Callable[[PlacementClient], object]
) -> None:
    with pytest.raises(BadRequest):
        wrong(scene.client)
    assert scene.seen() == []
