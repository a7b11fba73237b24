"""The beginning of a move, on values alone: what is written, and what has to agree with what is on
record.
"""

from dataclasses import replace
from typing import Any

import pytest

from agent.model.devices import DeviceRequest, MdevShare
from agent.model.instance import Flavor
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import Claim, Migration, RecordChanges
from agent.tracker import move_claims
from agent.tracker.errors import (
    ClaimReleased,
    InstanceClaimed,
    InstanceDiffers,
    InvalidTrackerRequest,
    TrackerError,
    WrongState,
)
from agent.tracker.reserving import Reservation
from agent.tracker.stored_state import (
    RECORDED_FLAVOR,
    MoveClaim,
    PlannedChange,
    StoredState,
    digest,
)
from tests.support.tracking import F1, F3, guest, instance
from tests.unit.store.record_samples import claim, device, unit
from tests.unit.tracker.samples import ELSEWHERE, HERE, pinned, state

NOW = 1_000_000.0
I1 = replace(
    instance("i1", F1), host=ELSEWHERE.host, node=ELSEWHERE.uuid, vm_state="active", version=3
)
SOURCE = claim(I1, ELSEWHERE, id="source", version=1)
KNOWN = StoredState(I1, claims=(SOURCE,))
MOVE = Migration(
    uuid=ConsumerUuid(guest("move")),
    instance=I1.uuid,
    type="resize",
    status="pre-migrating",
    source_compute=ELSEWHERE.host,
    source_node=ELSEWHERE.uuid,
    dest_compute=HERE.host,
    dest_node=HERE.uuid,
    old_flavor_id="f1",
    new_flavor_id="f3",
    created_at=NOW,
    updated_at=NOW,
)
ON_HERE = replace(HERE, host_ip="192.0.2.7")


def request(kind: str = "resize", **fields: Any) -> MoveClaim:
    return MoveClaim(
        **{
            "id": MOVE.uuid,
            "type": kind,
            "node": HERE.uuid,
            "instance": I1,
            "flavor": F3 if kind == "resize" else None,
            **fields,
        }
    )


class Planned:
    """Gives the guest what the test says, and notes what was wanted."""

    def __init__(self, *cells: Any, devices: Any = (), units: Any = (), mdevs: Any = ()) -> None:
        self.cells, self.devices, self.units, self.mdevs = cells, devices, units, mdevs

    def reserve(self, state: Any, wanted: MoveClaim, guest: Any, flavor: Flavor) -> Reservation:
        self.wanted, self.flavor = wanted, flavor
        amounts = flavor.amounts(volume_backed=guest.volume_backed)
        return Reservation(amounts, self.cells, self.devices, self.units, self.mdevs)


def claimed(
    known: StoredState = KNOWN, asked: MoveClaim | None = None, planner: Planned | None = None
) -> PlannedChange:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(move_claims, "reserve", (planner or Planned()).reserve)
        return move_claims.claim_move(state(on=ON_HERE), known, asked or request(), NOW)


# --- what is written ------------------------------------------------------------------------------


def test_a_move_writes_every_field_of_its_claim_and_of_what_it_holds() -> None:
    gpu, space = device(HERE, "0000:01:00.0"), unit(HERE, "ns0")
    asked = request()
    shares = (MdevShare(HERE.uuid, "VGPU", 1),)
    planner = Planned(
        pinned(0, 4), devices=((gpu, DeviceRequest("gpu", 1)),), units=(space,), mdevs=shares
    )
    planned = claimed(asked=asked, planner=planner)
    made = Claim(
        id=MOVE.uuid,
        purpose="move",
        instance=I1.uuid,
        node=HERE.uuid,
        half="new",
        amounts=F3.amounts(volume_backed=False),
        cells=(pinned(0, 4),),
        mdevs=shares,
        flavor_id="f3",
        migration=MOVE.uuid,
        origin=MOVE.uuid,
        digest=digest(asked),
        created_at=NOW,
        updated_at=NOW,
    )
    assert planned == PlannedChange(
        made,
        RecordChanges(
            instances=(replace(I1, old_flavor=F1, new_flavor=F3, created_at=NOW, updated_at=NOW),),
            migrations=(replace(MOVE, dest_host="192.0.2.7"),),
            claims=(replace(SOURCE, half="old", migration=MOVE.uuid, updated_at=NOW), made),
            devices=(replace(gpu, holder=MOVE.uuid, state="allocated", request="gpu"),),
            units=(replace(space, holder=MOVE.uuid),),
        ),
    )
    assert (planner.wanted.id, planner.flavor) == (MOVE.uuid, F3)


# --- the record of the move -----------------------------------------------------------------------

GIVEN = Migration(
    uuid=MOVE.uuid,
    instance=I1.uuid,
    type="live-migration",
    status="running",
    source_compute="HZ",
    source_node=ProviderUuid("node-z"),
    created_at=5.0,
    version=4,
)


@pytest.mark.parametrize("stored", [True, False])
def test_a_record_of_the_move_keeps_what_it_says(*, stored: bool) -> None:
    asked = request("live-migration", migration=None if stored else GIVEN)
    known = StoredState(None, GIVEN if stored else None)
    (record,) = claimed(known, asked).changes.migrations
    assert record == replace(
        GIVEN,
        dest_compute=HERE.host,
        dest_node=HERE.uuid,
        dest_host="192.0.2.7",
        old_flavor_id="f1",
        new_flavor_id="f1",
        updated_at=NOW,
    )


def test_a_record_of_the_move_that_has_no_source_gets_the_guests() -> None:
    kept = replace(GIVEN, type="migration", source_compute=None, source_node=None)
    (record,) = claimed(replace(KNOWN, migration=kept), request("migration")).changes.migrations
    assert (record.source_compute, record.source_node, record.status) == (
        ELSEWHERE.host,
        ELSEWHERE.uuid,
        "pre-migrating",
    )


UNDER_WAY = (
    "queued",
    "accepted",
    "pre-migrating",
    "preparing",
    "migrating",
    "running",
    "post-migrating",
)


@pytest.mark.parametrize("status", UNDER_WAY)
def test_a_move_may_begin_with_a_record_that_is_under_way(status: Any) -> None:
    (record,) = claimed(replace(KNOWN, migration=replace(MOVE, status=status))).changes.migrations
    assert record.status == "pre-migrating"


# --- what cannot be -------------------------------------------------------------------------------

HERE_ALREADY = replace(I1, host=HERE.host, node=HERE.uuid)
MOVING = replace(SOURCE, half="old", migration="another")


@pytest.mark.parametrize(
    ("known", "asked", "error", "message"),
    [
        (StoredState(replace(I1, deleted=True)), request(), WrongState, "is deleted"),
        (
            StoredState(replace(I1, vm_state="shelved_offloaded")),
            request(),
            WrongState,
            "is deleted",
        ),
        (StoredState(replace(I1, host=None, node=None)), request(), WrongState, "is on no host"),
        (StoredState(I1), request(flavor=None), InvalidTrackerRequest, "resize needs flavor"),
        (
            StoredState(I1),
            request("migration", flavor=F3),
            InvalidTrackerRequest,
            "migration has no flavor",
        ),
        (
            StoredState(I1, claims=(SOURCE, MOVING)),
            request(),
            InstanceClaimed,
            "is being moved by migration another",
        ),
        (
            StoredState(HERE_ALREADY),
            request("live-migration"),
            InvalidTrackerRequest,
            f"is on node {HERE.uuid} already",
        ),
        (
            StoredState(replace(HERE_ALREADY, node=None)),
            request("evacuation"),
            InvalidTrackerRequest,
            f"is on node {HERE.uuid} already",
        ),
        (
            StoredState(I1, replace(MOVE, instance=guest("i2"))),
            request(),
            InvalidTrackerRequest,
            f"is a resize of instance {guest('i2')}",
        ),
        (
            StoredState(I1, replace(MOVE, type="migration")),
            request(),
            InvalidTrackerRequest,
            f"is a migration of instance {I1.uuid}",
        ),
        (StoredState(I1, replace(MOVE, status="finished")), request(), WrongState, "is finished"),
        (
            StoredState(),
            request(instance=replace(I1, flavor=RECORDED_FLAVOR)),
            InvalidTrackerRequest,
            f"what instance {I1.uuid} has now",
        ),
    ],
)
def test_a_move_that_cannot_be_says_why(
    known: StoredState, asked: MoveClaim, error: type[TrackerError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        claimed(known, asked)
    assert caught.value.remedy


# --- what has to agree ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page_size", "said", "difference"),
    [
        (4, 4, None),
        (4, 2048, "its page size in KiB is 4, not 2048"),
        (None, 4, "its page size in KiB is None, not 4"),
        (4, None, None),
    ],
)
def test_what_is_said_of_a_guests_pages_agrees_with_its_claim(
    page_size: int | None, said: int | None, difference: str | None
) -> None:
    there = replace(SOURCE, cells=(replace(pinned(0, 4), page_size_kib=page_size),))
    asked = request(page_size_kib=said)
    known = StoredState(I1, claims=(claim(I1, HERE, id="other"), there))
    if difference is None:
        assert claimed(known, asked).claim.id == MOVE.uuid
    else:
        with pytest.raises(InstanceDiffers, match=difference):
            claimed(known, asked)
    # Nothing is on record to agree with.
    assert claimed(StoredState(I1), asked).claim.id == MOVE.uuid
    assert claimed(StoredState(), asked).claim.id == MOVE.uuid


@pytest.mark.parametrize(
    ("said", "fields", "kept", "difference"),
    [
        ({}, set(), None, None),
        # Without a record of the move its source is the guest's.
        ({"source_compute": "HZ"}, set(), None, "its migration's source_compute is HB, not HZ"),
        ({"source_node": "nz"}, set(), None, "its migration's source_node is .*, not nz"),
        ({"source_compute": None, "source_node": None}, set(), None, None),
        ({"dest_host": "192.0.2.9"}, {"dest_host"}, None, None),
        ({"dest_host": "192.0.2.9"}, {"dest_host"}, MOVE, "dest_host is None, not 192.0.2.9"),
        ({"dest_host": "192.0.2.9"}, set(), MOVE, None),
        ({"source_compute": "HZ"}, set(), MOVE, "source_compute is HB, not HZ"),
        (
            {"source_compute": None},
            {"source_compute"},
            MOVE,
            "source_compute is HB, not None",
        ),
    ],
)
def test_what_is_said_of_a_migration_agrees_with_its_record(
    said: dict[str, Any], fields: set[str], kept: Migration | None, difference: str | None
) -> None:
    asked = request(migration=replace(MOVE, **said), given_migration_fields=frozenset(fields))
    known = replace(KNOWN, migration=kept)
    if difference is None:
        assert claimed(known, asked).claim.id == MOVE.uuid
    else:
        with pytest.raises(InstanceDiffers, match=difference):
            claimed(known, asked)


def test_every_contradiction_is_told_at_once() -> None:
    there = replace(SOURCE, cells=(replace(pinned(0, 4), page_size_kib=4),))
    asked = request(
        instance=replace(I1, host="HZ"),
        given_fields=frozenset({"host"}),
        page_size_kib=2048,
        migration=replace(MOVE, source_compute="HZ"),
    )
    with pytest.raises(InstanceDiffers, match=f"instance {I1.uuid} is not as") as caught:
        claimed(StoredState(I1, claims=(there,)), asked)
    assert caught.value.reasons == (
        "host is HB, not HZ",
        "its page size in KiB is 4, not 2048",
        "its migration's source_compute is HB, not HZ",
    )
    assert caught.value.data["reasons"] == list(caught.value.reasons)


# --- guests whose record is of another store ------------------------------------------------------

STRANGE = frozenset({"HB", "HC"})
LEFT = StoredState(
    replace(I1, launched_on="HL", created_at=5.0, version=7, project_id="before"),
    strange_hosts=STRANGE,
)


@pytest.mark.parametrize(
    ("known", "host"),
    [
        (LEFT, "HD"),
        (replace(LEFT, claims=(SOURCE,)), "HC"),
        (replace(LEFT, strange_hosts=frozenset({"HC"})), "HC"),
    ],
)
def test_a_record_counts_unless_the_guest_left_and_comes_from_another_store(
    known: StoredState, host: str
) -> None:
    asked = request("migration", instance=replace(I1, host=host), given_fields=frozenset({"host"}))
    with pytest.raises(InstanceDiffers, match=f"host is HB, not {host}"):
        claimed(known, asked)


# --- requests that are repeated -------------------------------------------------------------------

MADE = Claim(
    id=MOVE.uuid,
    purpose="move",
    instance=I1.uuid,
    node=HERE.uuid,
    half="new",
    migration=MOVE.uuid,
    digest=digest(request()),
)


@pytest.mark.parametrize("migration", [MOVE, None])
def test_only_a_source_answers_with_a_claim_that_was_given_back(migration: Any) -> None:
    released = replace(MADE, state="released")
    known = StoredState(I1, migration, released)
    with pytest.raises(ClaimReleased):
        move_claims.repeat(known, request(), HERE.host)
    if migration is None:
        with pytest.raises(ClaimReleased):
            move_claims.repeat(known, request(), ELSEWHERE.host)
    else:
        assert move_claims.repeat(known, request(), ELSEWHERE.host) == PlannedChange(released)


# --- at a source whose guest goes to a host with a store of its own -------------------------------

THERE = ProviderUuid("node-c")


def left(known: StoredState = KNOWN, **fields: Any) -> PlannedChange:
    kind = fields.pop("kind", "resize")
    asked = request(kind, **{"node": THERE, "host": "HC", **fields})
    return move_claims.leave(state(on=ELSEWHERE), known, asked, NOW)


def test_a_source_takes_the_states_from_its_caller_without_comparing_them() -> None:
    said = replace(I1, vm_state="stopped", task_state="migrating")
    both = frozenset({"vm_state", "task_state", "host"})
    (written,) = left(kind="migration", instance=said, given_fields=both).changes.instances
    assert (written.vm_state, written.task_state, written.version) == ("stopped", "migrating", 3)
    (written,) = left(
        kind="migration", instance=said, given_fields=frozenset({"task_state"})
    ).changes.instances
    assert (written.vm_state, written.task_state) == ("active", "migrating")
    assert left(kind="migration", instance=said).changes.instances == ()
    same = replace(I1, project_id="another")
    assert left(kind="migration", instance=same, given_fields=both).changes.instances == ()
    with pytest.raises(InstanceDiffers, match="host is HB, not HZ"):
        left(kind="migration", instance=replace(said, host="HZ"), given_fields=both)
