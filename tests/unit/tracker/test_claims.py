"""The plans of claims of new guests and of devices, on values alone."""

from dataclasses import replace
from typing import Any

import pytest

from agent.model.devices import DeviceRequest
from agent.model.instance import Amounts, Instance
from agent.model.node_records import Claim, RecordChanges
from agent.tracker import claims
from agent.tracker.errors import (
    ClaimIdTaken,
    ClaimReleased,
    InstanceClaimed,
    InstanceElsewhere,
    ResourcesUnavailable,
    TrackerError,
    UnknownInstance,
    WrongState,
)
from agent.tracker.stored_state import (
    DeviceClaim,
    InstanceClaim,
    PlannedChange,
    StoredState,
    digest,
)
from tests.support.tracking import F1, FN, instance
from tests.unit.store.record_samples import claim, unit
from tests.unit.tracker.samples import ELSEWHERE, HERE, gpus, state

NOW = 1_000_000.0
I1 = instance("i1", F1)
I1_HERE = replace(I1, host=HERE.host, node=HERE.uuid, version=3)
I1_THERE = replace(I1, host=ELSEWHERE.host, node=ELSEWHERE.uuid, version=3)
ROOM = claim(I1, HERE, id="room", version=1)
ROOM_THERE = claim(I1, ELSEWHERE, id="room-there", version=1)
GPU = DeviceRequest("gpu", 1, {"kind": "gpu"})


def wanted(of: Instance = I1, **fields: Any) -> InstanceClaim:
    return InstanceClaim(**{"id": "room", "node": HERE.uuid, "instance": of, **fields})


def port(*devices: DeviceRequest) -> DeviceClaim:
    return DeviceClaim(id="port", node=HERE.uuid, instance=I1.uuid, devices=devices or (GPU,))


# --- new guests -----------------------------------------------------------------------------------


def test_a_new_guest_is_a_held_claim_and_belongs_to_the_node() -> None:
    flavor = replace(FN, memory_mb=1024)
    guest, asked = replace(I1, flavor=flavor), (GPU,)
    units = unit(HERE, "ns0"), unit(HERE, "ns1")
    request = wanted(guest, devices=asked, allocations={HERE.uuid: {"CUSTOM_PMEM": 1}})
    (gpu,) = gpus(1)
    planned = claims.claim_instance(state(devices=[gpu], units=units), StoredState(), request, NOW)
    made = Claim(
        id="room",
        purpose="instance",
        instance=I1.uuid,
        node=HERE.uuid,
        amounts=Amounts(1024, 2, 10240),
        cells=planned.claim.cells,
        flavor_id="fn",
        digest=digest(request),
        created_at=NOW,
        updated_at=NOW,
    )
    assert len(made.cells) == 1
    owned = replace(
        guest,
        host=HERE.host,
        node=HERE.uuid,
        launched_on=HERE.host,
        created_at=NOW,
        updated_at=NOW,
    )
    assert planned == PlannedChange(
        made,
        RecordChanges(
            instances=(owned,),
            claims=(made,),
            devices=(replace(gpu, holder="room", state="allocated", request="gpu"),),
            units=(replace(units[0], holder="room"),),
        ),
    )


def test_a_guest_on_record_keeps_what_only_its_record_has() -> None:
    kept = replace(I1, launched_on="HZ", created_at=5.0, version=7, project_id="before")
    planned = claims.claim_instance(state(), StoredState(kept), wanted(), NOW)
    (owned,) = planned.changes.instances
    assert owned == replace(
        I1,
        host=HERE.host,
        node=HERE.uuid,
        launched_on=HERE.host,
        created_at=5.0,
        updated_at=NOW,
        version=7,
    )


@pytest.mark.parametrize(
    ("known", "given", "error", "message"),
    [
        (
            StoredState(I1_HERE, claims=(ROOM,)),
            I1,
            InstanceClaimed,
            "has claim room already",
        ),
        (StoredState(replace(I1, deleted=True)), I1, WrongState, "is deleted"),
        (StoredState(I1_THERE), I1, InstanceElsewhere, "host HB, node 5d1c9d7e"),
        (StoredState(replace(I1, host="HB")), I1, InstanceElsewhere, r"belongs to host HB \("),
        # The record says that it is here, and the caller that it is not.
        (StoredState(I1_HERE), I1_THERE, InstanceElsewhere, "host HB"),
        (StoredState(), I1_THERE, InstanceElsewhere, "host HB"),
        (
            StoredState(),
            replace(I1, host=HERE.host, node=ELSEWHERE.uuid),
            InstanceElsewhere,
            "host HA, node",
        ),
        (StoredState(), replace(I1, flavor=replace(FN, vcpus=9)), ResourcesUnavailable, "NUMA"),
    ],
)
def test_a_new_guest_that_cannot_be_is_refused_with_its_reason(
    known: StoredState, given: Instance, error: type[TrackerError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        claims.claim_instance(state(), known, wanted(given), NOW)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "known",
    [
        StoredState(I1_HERE),
        StoredState(replace(I1_HERE, node=None)),
        # Its record is what was last reported of a host with a store of its own.
        StoredState(I1_THERE, strange_hosts=frozenset({ELSEWHERE.host})),
    ],
)
def test_a_guest_that_is_here_or_has_left_another_store_may_be_claimed(known: StoredState) -> None:
    (owned,) = claims.claim_instance(state(), known, wanted(), NOW).changes.instances
    assert (owned.host, owned.node) == (HERE.host, HERE.uuid)


def test_a_refusal_names_the_claim_or_the_host_that_is_in_the_way() -> None:
    with pytest.raises(InstanceClaimed) as claimed:
        claims.claim_instance(state(), StoredState(I1_HERE, claims=(ROOM,)), wanted(), NOW)
    assert claimed.value.data["claim"] == "room"
    with pytest.raises(InstanceElsewhere) as elsewhere:
        claims.claim_instance(state(), StoredState(I1_THERE), wanted(), NOW)
    assert elsewhere.value.data["host"] == ELSEWHERE.host


# --- requests that are repeated -------------------------------------------------------------------


@pytest.mark.parametrize("asked", [wanted(), port()])
def test_an_equal_request_has_the_claim_that_it_made_and_no_other(asked: Any) -> None:
    made = claim(I1, HERE, id=asked.id, digest=digest(asked))
    assert claims.repeated_claim(StoredState(), asked) is None
    assert claims.repeated_claim(StoredState(claim=made), asked) is made
    with pytest.raises(ClaimIdTaken, match=f"claim {asked.id} exists, with another") as taken:
        claims.repeated_claim(StoredState(claim=replace(made, digest="another")), asked)
    assert taken.value.remedy
    released = replace(made, state="released")
    assert claims.claim_made_by(StoredState(claim=released), asked) is released
    with pytest.raises(ClaimReleased, match=f"claim {asked.id} was given back") as given_back:
        claims.repeated_claim(StoredState(claim=released), asked)
    assert given_back.value.remedy


# --- aborts ---------------------------------------------------------------------------------------


def aborted(what: Claim, of: Instance | None = I1_HERE, **fields: Any) -> PlannedChange:
    stored = StoredState(of, claim=what, claims=(what,) if what.open else ())
    return claims.abort_claim(replace(stored, **fields), NOW)


@pytest.mark.parametrize("of", [None, I1_THERE])
def test_an_abort_leaves_the_record_of_a_guest_that_is_not_here_alone(of: Instance | None) -> None:
    assert aborted(ROOM, of).changes.instances == ()


# --- devices --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "error", "message"),
    [
        (StoredState(claims=(ROOM,)), UnknownInstance, f"no record of instance {I1.uuid}"),
        (StoredState(I1_HERE), InstanceElsewhere, "has no claim on node n1"),
        (StoredState(I1_HERE, claims=(ROOM_THERE,)), InstanceElsewhere, "has no claim on node n1"),
        (StoredState(I1_HERE, claims=(ROOM,)), ResourcesUnavailable, "."),
    ],
)
def test_devices_that_a_guest_cannot_have_are_refused(
    known: StoredState, error: type[TrackerError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        claims.claim_devices(state(), known, port(), NOW)
    assert caught.value.remedy
