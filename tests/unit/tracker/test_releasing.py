"""How a claim is given back, with everything that it holds."""

from dataclasses import replace

from agent.model.host_units import MdevShare
from agent.model.node_records import RecordChanges
from agent.tracker.stored_state import StoredState
from agent.tracker.verdicts import give_back, release_claims
from tests.unit.store.record_samples import claim, unit
from tests.unit.tracker.samples import ELSEWHERE, HERE, gpus, guest_here, holder, pinned

GUEST = guest_here()
CLAIM = claim(GUEST, HERE, cells=(pinned(0, 4),), mdevs=(MdevShare(HERE.uuid, "VGPU", 1),))
ATTACHED = claim(GUEST, HERE, purpose="devices")


def test_a_released_claim_has_no_pins_and_no_mediated_devices_and_keeps_its_amounts() -> None:
    (one,) = release_claims([CLAIM], StoredState(), 7.0).claims
    assert (one.state, one.cells, one.mdevs, one.amounts, one.updated_at) == (
        "released",
        (),
        (),
        CLAIM.amounts,
        7.0,
    )


def test_what_it_holds_is_free_and_nothing_else() -> None:
    mine, other = (
        replace(gpu, request="r", **holder(whose))
        for gpu, whose in zip(gpus(2), (CLAIM, ATTACHED), strict=True)
    )
    units = unit(HERE, "ns_0", holder=CLAIM.id), unit(HERE, "ns_1", holder=ATTACHED.id)
    found = release_claims([CLAIM], StoredState(devices=(mine, other), units=units), 7.0)
    assert found.devices == (replace(mine, holder=None, request=None, state="available"),)
    assert found.units == (replace(units[0], holder=None),)
    assert (found.dropped_devices, found.dropped_units) == ((), ())


def test_what_is_gone_from_the_host_is_dropped() -> None:
    gone = replace(gpus(1)[0], present=False, **holder(CLAIM))
    lost = unit(HERE, holder=CLAIM.id, present=False)
    found = release_claims([CLAIM], StoredState(devices=(gone,), units=(lost,)), 7.0)
    assert (found.devices, found.units, found.dropped_devices, found.dropped_units) == (
        (),
        (),
        (gone,),
        (lost,),
    )


def test_a_released_claim_releases_nothing_more() -> None:
    again = replace(CLAIM, state="released")
    taken_since = replace(gpus(1)[0], **holder(again))
    assert release_claims([again], StoredState(devices=(taken_since,)), 7.0) == RecordChanges()


def test_devices_that_a_guest_got_afterwards_go_with_its_last_claim_on_the_node() -> None:
    found = give_back([CLAIM], StoredState(claims=(CLAIM, ATTACHED)), 7.0)
    assert {claim.id for claim in found.claims} == {CLAIM.id, ATTACHED.id}


def test_they_stay_while_something_else_of_the_guest_is_there() -> None:
    half = claim(GUEST, HERE, half="new")
    found = give_back([half], StoredState(claims=(CLAIM, half, ATTACHED)), 7.0)
    assert [claim.id for claim in found.claims] == [half.id]


def test_those_on_another_node_stay() -> None:
    there, attached_there = claim(GUEST, ELSEWHERE), claim(GUEST, ELSEWHERE, purpose="devices")
    found = give_back([CLAIM], StoredState(claims=(CLAIM, ATTACHED, there, attached_there)), 7.0)
    assert {claim.id for claim in found.claims} == {CLAIM.id, ATTACHED.id}


def test_devices_given_back_by_themselves_are_given_back_once() -> None:
    found = give_back([ATTACHED, CLAIM], StoredState(claims=(CLAIM, ATTACHED)), 7.0)
    assert sorted(claim.id for claim in found.claims) == sorted([ATTACHED.id, CLAIM.id])
