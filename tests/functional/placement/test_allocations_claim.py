"""Claims, and what becomes of them when somebody else or the
network is in the way.
"""

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from agent.errors import PlacementRefused, PlacementUnreachable
from agent.model.inventory import Allocation
from agent.placement import exchange
from agent.placement.allocations.candidates import candidates, parse_query
from agent.placement.allocations.change import Doubling
from agent.placement.allocations.checks import (
    BadRequest,
    ConsumerChanged,
    NotEnoughRoom,
)
from agent.placement.allocations.claim import Claimed, Owner, claim, put
from tests.support import faults
from tests.support.placement import PROJECT, USER
from tests.support.settled import (
    OWNER,
    PF0,
    SS,
    C,
    H,
    Holdings,
    M,
    R,
    Scene,
    record,
    request,
)

TWO = {R: {"VCPU": 2}}
RACE = faults.answer(409, "placement.concurrent_update")
READ, NEW, AGAIN = (
    "GET allocations c -> 200",
    "PUT allocations c cg null -> 204",
    "PUT allocations c cg 1 -> 204",
)

pytestmark = pytest.mark.usefixtures("short_waits")


def claimed(
    scene: Scene,
    *wanted: Holdings,
    doubling: Doubling = Doubling.REFUSE,
    generation: int | None = None,
) -> Claimed:
    return claim(
        scene.client,
        C,
        [request(one) for one in wanted or (TWO,)],
        OWNER,
        doubling=doubling,
        generation=generation,
    )


def warnings(scene: Scene) -> list[str]:
    return [
        one.getMessage()
        for one in scene.log.records
        if one.levelno >= logging.WARNING and one.name.startswith("agent.")
    ]


def somebody_claims(scene: Scene, holdings: Holdings) -> faults.Action:
    """Just before a write of ours, somebody else gives c something else."""
    return faults.before(lambda _: scene.other.claim(holdings, C))


# --- new consumers --------------------------------------------------------------------------------


def test_a_new_consumer_is_claimed_with_two_requests(scene: Scene) -> None:
    assert claimed(scene).resources == TWO
    assert scene.seen() == [READ, NEW]
    assert scene.placement.requests[1].version == "1.36"
    scene.settled({C: record(TWO, 1)}, {R: 1})
    # The same again is a success that writes nothing.
    scene.begin()
    assert claimed(scene).resources == TWO
    assert scene.seen() == [READ]
    scene.settled()


def test_a_candidate_is_written_back_with_the_version_and_mappings_that_it_was_read_with(
    scene: Scene,
) -> None:
    offer = next(
        one
        for one in candidates(scene.client, parse_query(["resources=VCPU:2,DISK_GB:10"])).requests
        if R in one.resources
    )
    before = repr(offer)
    result = claim(scene.client, C, [offer], OWNER, doubling=Doubling.REFUSE)
    written = scene.placement.requests[-1]
    assert (written.version, written.body["allocations"], written.body["mappings"]) == (
        "1.36",
        offer.body["allocations"],
        offer.body["mappings"],
    )
    assert repr(offer) == before, "the caller's request is its own"
    assert result.request is offer
    scene.settled({C: record({R: {"VCPU": 2}, SS: {"DISK_GB": 10}}, 1)}, {R: 1, SS: 1})


@pytest.mark.parametrize(
    "lost",
    [
        faults.read_timeout(applied=True),
        faults.cut(applied=True),
        faults.html(502, applied=True),
        faults.answer(500, applied=True),
    ],
)
def test_a_claim_whose_answer_was_lost_is_looked_for_and_not_sent_again(
    scene: Scene, lost: faults.Action
) -> None:
    scene.placement.faults.add(lost, method="PUT")
    assert claimed(scene).resources == TWO
    assert [line.partition(" ->")[0] for line in scene.seen()] == [
        "GET allocations c",
        "PUT allocations c cg null",
        "GET allocations c",
    ]
    scene.settled({C: record(TWO, 1)}, {R: 1})


@pytest.mark.parametrize(
    ("lost", "error"),
    [
        (faults.read_timeout(), PlacementUnreachable),
        (faults.reset(), PlacementUnreachable),
        (faults.answer(503), PlacementRefused),
        (faults.answer(500), PlacementRefused),
    ],
)
def test_a_claim_that_was_not_applied_raises_what_happened_to_it(
    scene: Scene, lost: faults.Action, error: type[Exception]
) -> None:
    scene.placement.faults.add(lost, method="PUT")
    with pytest.raises(error):
        claimed(scene)
    assert [line.partition(" ->")[0] for line in scene.seen()] == [
        "GET allocations c",
        "PUT allocations c cg null",
        "GET allocations c",
    ]
    scene.settled()


def test_a_lost_answer_that_cannot_be_looked_for_stays_unknown(scene: Scene) -> None:
    scene.placement.faults.add(faults.read_timeout(applied=True), method="PUT")
    scene.placement.faults.add(faults.refused(), method="GET", skip=1, times=None)
    with pytest.raises(PlacementUnreachable) as failure:
        claimed(scene)
    assert failure.value.outcome_unknown, (
        "the write's failure is told, not that of the reading after it"
    )
    assert claimed_after_the_outage(scene) == [READ]


def claimed_after_the_outage(scene: Scene) -> list[str]:
    scene.placement.faults.clear()
    scene.placement.clear()
    claimed(scene)
    return scene.seen()


def test_a_claim_that_does_not_fit_is_sent_once(scene: Scene) -> None:
    with pytest.raises(NotEnoughRoom) as refused:
        claimed(scene, {R: {"VCPU": 17}})
    assert scene.seen() == [READ, "PUT allocations c cg null -> 409"]
    assert C in refused.value.message
    scene.settled()


def test_alternates_are_tried_in_their_order_and_each_as_it_is(scene: Scene) -> None:
    wanted = [
        request({R: {"VCPU": 17}}),
        request({H: {"VCPU": 3}}, mappings={"": [H]}),
        request(TWO),
    ]
    result = claim(scene.client, C, wanted, OWNER, doubling=Doubling.REFUSE)
    assert result == Claimed(wanted[1], {H: {"VCPU": 3}})
    assert scene.seen() == [READ, "PUT allocations c cg null -> 409", NEW]
    for sent, one in zip(scene.placement.writes(), wanted, strict=False):
        assert {key: sent.body[key] for key in one.body} == one.body
    scene.settled({C: record({H: {"VCPU": 3}}, 1)}, {H: 1})


def test_only_a_lack_of_room_leads_to_the_next_alternate(scene: Scene) -> None:
    with pytest.raises(BadRequest, match="400"):
        claimed(scene, {M: {"VCPU": 1}}, TWO)
    assert scene.seen() == [READ, "PUT allocations c cg null -> 400"]
    # Placement leaves a phantom behind when it refuses an unknown provider. It is no obstacle to
    # the next claim.
    scene.settled({C: record({}, 0)})
    claimed(scene)
    scene.settled({C: record(TWO, 1)}, {R: 1})


# --- races ----------------------------------------------------------------------------------------


def test_a_consumer_that_was_changed_after_it_was_read_is_not_written_again(
    scene: Scene,
) -> None:
    scene.given((C, {H: {"VCPU": 1}}))
    scene.placement.faults.add(somebody_claims(scene, {H: {"VCPU": 4}}), method="PUT")
    with pytest.raises(ConsumerChanged):
        claimed(scene, doubling=Doubling.SUM)
    assert scene.seen() == [READ, "PUT allocations c cg 1 -> 409", READ]
    scene.settled({C: record({H: {"VCPU": 4}}, 2)}, {H: 1})


def test_a_consumer_that_was_made_meanwhile(scene: Scene) -> None:
    scene.placement.faults.add(somebody_claims(scene, {H: {"VCPU": 4}}), method="PUT")
    with pytest.raises(ConsumerChanged, match="holds something else meanwhile"):
        claimed(scene)
    assert scene.seen() == [READ, "PUT allocations c cg null -> 409", READ]
    scene.settled({C: record({H: {"VCPU": 4}}, 1)}, {H: 1})


def test_what_somebody_else_claimed_meanwhile_is_as_good_if_it_is_the_same(
    scene: Scene,
) -> None:
    scene.placement.faults.add(somebody_claims(scene, TWO), method="PUT")
    assert claimed(scene).resources == TWO
    assert scene.seen() == [READ, "PUT allocations c cg null -> 409", READ]
    scene.settled({C: record(TWO, 1)}, {R: 1})


def test_a_race_for_a_provider_is_repeated_with_the_same_body(scene: Scene) -> None:
    scene.given((C, {H: {"VCPU": 1}}))
    scene.placement.faults.add(RACE, method="PUT")
    assert claimed(scene, doubling=Doubling.SUM).resources == {**TWO, H: {"VCPU": 1}}
    assert scene.seen() == [READ, "PUT allocations c cg 1 -> 409", READ, AGAIN]
    first, second = scene.placement.writes()
    assert first.body == second.body
    scene.settled({C: record({**TWO, H: {"VCPU": 1}}, 2)}, {R: 1, H: 1})


def test_a_race_for_a_new_consumers_provider_is_told_from_a_phantom(scene: Scene) -> None:
    scene.placement.faults.add(RACE, method="PUT")
    claimed(scene)
    assert scene.seen() == [
        READ,
        "PUT allocations c cg null -> 409",
        READ,
        "PUT allocations c cg 0 -> 409",
        READ,
        NEW,
    ]
    assert warnings(scene) == []
    scene.settled({C: record(TWO, 1)}, {R: 1})


def test_a_stop_ends_the_wait_before_an_attempt_and_nothing_is_sent_afterwards(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "REPETITION_WAITS", (60.0, 60.0, 60.0))
    scene.given((C, {H: {"VCPU": 1}}))
    scene.placement.faults.add(RACE, method="PUT", times=None)
    scene.placement.faults.add(faults.after(lambda _: scene.cancelled.set()), method="GET", skip=1)
    with pytest.raises(PlacementUnreachable) as stopped:
        claimed(scene, doubling=Doubling.SUM)
    assert stopped.value.kind == "cancelled"
    assert scene.seen() == [READ, "PUT allocations c cg 1 -> 409", READ]
    scene.settled()


def test_a_phantom_is_claimed_with_the_generation_that_nobody_sees(scene: Scene) -> None:
    scene.other.call(
        "PUT",
        f"/allocations/{C}",
        {"allocations": {}, "project_id": "p", "user_id": "u", "consumer_generation": None},
    )
    assert scene.placement.dump()["consumers"][C]["generation"] == 0
    scene.begin()
    claimed(scene)
    assert scene.seen() == [
        READ,
        "PUT allocations c cg null -> 409",
        READ,
        "PUT allocations c cg 0 -> 204",
    ]
    assert warnings(scene) == [
        f"consumer {C} had a record without allocations, which another client left behind"
    ]
    scene.settled({C: record(TWO, 1)}, {R: 1})


# --- consumers that hold something ----------------------------------------------------------------

SOURCE = {R: {"VCPU": 2, "MEMORY_MB": 512}, SS: {"DISK_GB": 10}}


@pytest.mark.parametrize(
    ("doubling", "destination", "both"),
    [
        (
            Doubling.MAXIMUM,
            {H: {"VCPU": 2}, SS: {"DISK_GB": 20}},
            {**SOURCE, H: {"VCPU": 2}, SS: {"DISK_GB": 20}},
        ),
        (Doubling.MAXIMUM, {H: {"VCPU": 2}, SS: {"DISK_GB": 5}}, {**SOURCE, H: {"VCPU": 2}}),
        (
            Doubling.SUM,
            {H: {"VCPU": 2}, SS: {"DISK_GB": 20}},
            {**SOURCE, H: {"VCPU": 2}, SS: {"DISK_GB": 30}},
        ),
        (Doubling.SUM, {R: {"VCPU": 4}}, {**SOURCE, R: {"VCPU": 6, "MEMORY_MB": 512}}),
        (Doubling.SUM, SOURCE, {R: {"VCPU": 4, "MEMORY_MB": 1024}, SS: {"DISK_GB": 20}}),
    ],
)
def test_a_move_holds_source_and_destination_in_one_record(
    scene: Scene, doubling: Doubling, destination: Holdings, both: Holdings
) -> None:
    scene.given((C, SOURCE))
    assert claimed(scene, destination, doubling=doubling).resources == both
    assert scene.seen() == [READ, AGAIN]
    scene.settled({C: record(both, 2)}, dict.fromkeys(both, 1))


def test_a_maximum_that_is_held_already_is_not_written(scene: Scene) -> None:
    scene.given((C, SOURCE))
    assert claimed(scene, {R: {"VCPU": 1}}, doubling=Doubling.MAXIMUM).resources == SOURCE
    assert scene.seen() == [READ]
    scene.settled()


def test_without_a_move_what_somebody_holds_stays(scene: Scene) -> None:
    scene.given((C, SOURCE))
    with pytest.raises(ConsumerChanged, match="holds something already"):
        claimed(scene)
    assert scene.seen() == [READ]
    scene.settled()


def test_a_forced_evacuation_writes_at_the_generation_of_its_decision(scene: Scene) -> None:
    scene.given((C, {R: {"VCPU": 1}}))
    assert claimed(scene, {H: {"VCPU": 1}}, doubling=Doubling.SUM, generation=1).resources == {
        R: {"VCPU": 1},
        H: {"VCPU": 1},
    }
    scene.begin()
    with pytest.raises(ConsumerChanged):
        claimed(scene, {SS: {"DISK_GB": 1}}, doubling=Doubling.SUM, generation=1)
    assert scene.seen() == [READ, "PUT allocations c cg 1 -> 409", READ]
    scene.settled()


def test_another_owner_is_written(scene: Scene) -> None:
    scene.given((C, TWO))
    claim(scene.client, C, [request(TWO)], Owner("another", USER), doubling=Doubling.REFUSE)
    assert scene.seen() == [READ, AGAIN]
    scene.settled({C: record(TWO, 2, project="another")}, {R: 1})


def test_a_consumer_type_goes_with_the_versions_that_have_one(scene: Scene) -> None:
    typed = replace(OWNER, consumer_type="INSTANCE")
    for version, owner in (("1.38", OWNER), ("1.36", typed)):
        with pytest.raises(BadRequest, match="consumer type"):
            claim(scene.client, C, [request(TWO, version)], owner, doubling=Doubling.REFUSE)
    assert scene.seen() == []
    claim(scene.client, C, [request(TWO, "1.38")], typed, doubling=Doubling.REFUSE)
    assert scene.placement.requests[-1].version == "1.38"
    held = scene.client.allocation(C, "1.38")
    assert held is not None
    assert held.consumer_type == "INSTANCE"


@pytest.mark.parametrize(
    "fault", [faults.answer(500), faults.answer(404), faults.html(200), faults.refused()]
)
def test_a_claim_goes_not_on_as_if_new_when_the_consumer_cannot_be_read(
    scene: Scene, fault: faults.Action
) -> None:
    scene.placement.faults.add(fault, method="GET", times=None)
    with pytest.raises((PlacementRefused, PlacementUnreachable)):
        claimed(scene)
    assert scene.placement.writes() == []
    scene.placement.faults.clear()
    scene.settled()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (
            lambda client: claim(client, "c", [request(TWO)], OWNER, doubling=Doubling.SUM),
            "consumer 'c' is no uuid",
        ),
        (
            lambda client: claim(client, C, [], OWNER, doubling=Doubling.SUM),
            "no allocation request",
        ),
        (
            lambda client: claim(client, C, [request({})], OWNER, doubling=Doubling.SUM),
            "names no provider",
        ),
        (
            lambda client: claim(client, C, [request(TWO, "1.27")], OWNER, doubling=Doubling.SUM),
            "1.27 is too old, it takes 1.28",
        ),
        (
            lambda client: claim(client, C, [request(TWO, "latest")], OWNER, doubling=Doubling.SUM),
            "'latest' is no microversion",
        ),
        (
            lambda client: claim(
                client, C, [request({R: {"VCPU": 0}})], OWNER, doubling=Doubling.SUM
            ),
            "the amount '0' of 'VCPU'",
        ),
        (
            lambda client: claim(client, C, [request({R: {}})], OWNER, doubling=Doubling.SUM),
            "nothing is named of provider",
        ),
        (
            lambda client: claim(
                client, C, [request(TWO)], Owner("", "u" * 256), doubling=Doubling.SUM
            ),
            "project's id '' has not 1 to 255 characters; the user",
        ),
        (
            lambda client: put(client, Allocation(C, {}, PROJECT, USER, None)),
            "would be made with nothing",
        ),
        (
            lambda client: put(client, Allocation("x", TWO, PROJECT, USER, None)),
            "consumer 'x' is no uuid",
        ),
    ],
)
def test_bad_input_is_refused_before_any_request(
    scene: Scene, wrong: Callable[..., object], told: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        wrong(scene.client)
    assert told in refused.value.message
    assert refused.value.remedy
    assert scene.seen() == []
    scene.settled()


# --- put ------------------------------------------------------------------------------------------


def test_put_writes_a_whole_record_with_one_request(scene: Scene) -> None:
    scene.given((C, TWO))
    put(scene.client, Allocation(C.upper(), {H.upper(): {"VCPU": 1}}, PROJECT, USER, 1))
    assert scene.seen() == [AGAIN]
    scene.settled({C: record({H: {"VCPU": 1}}, 2)}, {H: 1})


def test_put_is_repeated_for_a_provider_and_not_for_a_consumer(scene: Scene) -> None:
    scene.given((C, TWO))
    mine = Allocation(C, {H: {"VCPU": 1}}, PROJECT, USER, 1)
    scene.placement.faults.add(RACE, method="PUT")
    put(scene.client, mine)
    assert scene.seen() == ["PUT allocations c cg 1 -> 409", READ, AGAIN]
    scene.begin()
    with pytest.raises(ConsumerChanged):
        put(scene.client, replace(mine, resources=TWO))
    assert scene.seen() == ["PUT allocations c cg 1 -> 409", READ]
    scene.settled()


@pytest.mark.parametrize(
    ("holdings", "error"),
    [
        ({PF0: {"SRIOV_NET_VF": 5}}, NotEnoughRoom),
        ({M: {"VCPU": 1}}, BadRequest),
        ({R: {"NO_SUCH": 1}}, BadRequest),
        ({H: {"DISK_GB": 1}}, NotEnoughRoom),
    ],
)
def test_put_that_does_not_fit_or_means_nothing(
    scene: Scene, holdings: Holdings, error: type[Exception]
) -> None:
    scene.given((C, TWO))
    with pytest.raises(error):
        put(scene.client, Allocation(C, holdings, PROJECT, USER, 1))
    assert scene.placement.count() == 1
    scene.settled()


@pytest.mark.parametrize("destination", [{H: {"VCPU": 2}, SS: {"DISK_GB": 20}}, {H: {"VCPU": 2}}])
def test_a_claim_of_both_ends_that_is_repeated_doubles_once(
    scene: Scene, destination: dict[str, dict[str, int]]
) -> None:
    scene.given((C, SOURCE))
    first = claimed(scene, destination, doubling=Doubling.SUM).resources
    scene.placement.clear()
    assert claimed(scene, destination, doubling=Doubling.SUM).resources == first
    assert scene.seen() == [READ]
