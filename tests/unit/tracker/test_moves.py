"""The plans of moves, on values alone: what each step does in each status of its move."""

from dataclasses import replace
from typing import Any

import pytest

from agent.model.names import ConsumerUuid
from agent.model.node_records import Claim, Migration, RecordChanges
from agent.tracker import move_claims, moves
from agent.tracker.errors import (
    InstanceClaimed,
    InvalidTrackerRequest,
    NodeDegraded,
    NodeUnavailable,
    ResourcesUnavailable,
    TrackerError,
    UnknownClaim,
    WrongState,
)
from agent.tracker.node_record import HostCapacity
from agent.tracker.stored_state import MoveClaim, PlannedChange, StoredState
from tests.support.tracking import F1, F3, guest, instance
from tests.unit.store.record_samples import claim, device
from tests.unit.tracker.samples import ELSEWHERE, HERE, STATUSES, state

NOW = 1_000_000.0
UNDER_WAY = (
    "queued",
    "accepted",
    "pre-migrating",
    "preparing",
    "migrating",
    "running",
    "post-migrating",
)
ARRIVED = ("finished", "confirming", "reverting")

I1 = replace(
    instance("i1", F1), host=ELSEWHERE.host, node=ELSEWHERE.uuid, vm_state="active", version=3
)
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
    version=1,
)
SOURCE = claim(I1, ELSEWHERE, id="source", version=1)
OLD = replace(SOURCE, half="old", migration=MOVE.uuid)
NEW = Claim(
    id=MOVE.uuid,
    purpose="move",
    instance=I1.uuid,
    node=HERE.uuid,
    half="new",
    amounts=F3.amounts(volume_backed=False),
    migration=MOVE.uuid,
    origin=MOVE.uuid,
    version=1,
)
PORT_THERE, PORT_HERE = (
    claim(I1, node, id=f"port-{node.name}", purpose="devices", version=1)
    for node in (ELSEWHERE, HERE)
)


def request(**fields: Any) -> MoveClaim:
    return MoveClaim(
        **{
            "id": MOVE.uuid,
            "type": "resize",
            "node": HERE.uuid,
            "instance": I1,
            "flavor": F3,
            **fields,
        }
    )


def under_way(status: str = "pre-migrating", kind: str = "resize", **fields: Any) -> StoredState:
    """What the store says of the move: its claim, both halves, and the instance that is to be an
    F3.
    """
    moving = replace(I1, old_flavor=F1, new_flavor=F3 if kind == "resize" else F1)
    new = fields.pop("new", NEW)
    known = StoredState(
        moving, replace(MOVE, status=status, type=kind), new, (OLD, new) if new.open else (OLD,)
    )  # type: ignore[arg-type]
    return replace(known, **fields)


def finished(status: str = "finished", **fields: Any) -> StoredState:
    """The same, with the guest here."""
    there = under_way(status, new=replace(NEW, state="consumed"))
    assert there.instance is not None
    return replace(
        there, instance=replace(there.instance, host=HERE.host, node=HERE.uuid, flavor=F3, **fields)
    )


def outcome(changes: RecordChanges) -> dict[str, tuple[str, str]]:
    """The claims that are written, with their states and halves."""
    return {claim.id: (claim.state, claim.half) for claim in changes.claims}


# --- claiming -------------------------------------------------------------------------------------


HERE_ALREADY = replace(I1, host=HERE.host, node=HERE.uuid)


@pytest.mark.parametrize(
    ("known", "fields", "error"),
    [
        (StoredState(replace(I1, deleted=True)), {}, WrongState),
        (StoredState(replace(I1, host=None, node=None)), {}, WrongState),
        (StoredState(I1), {"flavor": None}, InvalidTrackerRequest),
        (StoredState(I1), {"type": "migration"}, InvalidTrackerRequest),
        (StoredState(I1, claims=(OLD,)), {}, InstanceClaimed),
        (
            StoredState(HERE_ALREADY),
            {"type": "live-migration", "flavor": None},
            InvalidTrackerRequest,
        ),
        (StoredState(HERE_ALREADY), {"type": "evacuation", "flavor": None}, InvalidTrackerRequest),
        (StoredState(I1, replace(MOVE, instance=guest("i2"))), {}, InvalidTrackerRequest),
        (StoredState(I1, replace(MOVE, type="migration")), {}, InvalidTrackerRequest),
        (StoredState(I1, replace(MOVE, status="error")), {}, WrongState),
        (StoredState(I1, replace(MOVE, status="failed")), {}, WrongState),
        (
            StoredState(I1),
            {"flavor": replace(F3, extra_specs={"hw:cpu_policy": "dedicated"}, vcpus=9)},
            ResourcesUnavailable,
        ),
    ],
)
def test_a_move_that_cannot_be_is_refused_with_its_reason(
    known: StoredState, fields: dict[str, Any], error: type[TrackerError]
) -> None:
    with pytest.raises(error) as caught:
        move_claims.claim_move(state(), known, request(**fields), NOW)
    assert caught.value.remedy


def test_a_node_that_takes_no_claims_takes_no_moves() -> None:
    with pytest.raises(NodeUnavailable):
        move_claims.claim_move(
            state(host=HostCapacity(available=False)), StoredState(I1), request(), NOW
        )
    with pytest.raises(NodeDegraded):
        move_claims.claim_move(
            replace(state(), damaged=("claim x: nonsense",)), StoredState(I1), request(), NOW
        )


# --- what each step does in each status -----------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "ended"), [("live-migration", "completed"), ("evacuation", "done")]
)
@pytest.mark.parametrize("status", UNDER_WAY)
def test_a_move_that_waits_for_nothing_gives_its_source_back_when_it_arrives(
    kind: str, ended: str, status: str
) -> None:
    changes = moves.finish(under_way(status, kind), NOW).changes
    assert outcome(changes) == {"source": ("released", "old"), MOVE.uuid: ("consumed", "only")}
    assert [migration.status for migration in changes.migrations] == [ended]
    assert [instance.flavor for instance in changes.instances] == [F1]


@pytest.mark.parametrize("status", STATUSES)
def test_a_move_is_confirmed_only_where_it_waits_for_that(status: str) -> None:
    if status not in ("finished", "confirming", "confirmed"):
        with pytest.raises(WrongState):
            moves.confirm(finished(status), NOW)
        return
    planned = moves.confirm(finished(status), NOW)
    assert planned.repeated == (status == "confirmed")
    if not planned.repeated:
        assert outcome(planned.changes) == {
            "source": ("released", "old"),
            MOVE.uuid: ("consumed", "only"),
        }
        assert [
            (instance.old_flavor, instance.new_flavor, instance.flavor)
            for instance in planned.changes.instances
        ] == [(None, None, F3)]


@pytest.mark.parametrize("status", STATUSES)
def test_a_move_is_reverted_only_where_it_waits_for_that(status: str) -> None:
    back = finished(status, task_state="resize_reverting")
    if status not in ("finished", "reverting", "reverted"):
        with pytest.raises(WrongState):
            moves.revert(back, NOW)
        return
    planned = moves.revert(back, NOW)
    assert planned.repeated == (status == "reverted")
    if not planned.repeated:
        assert outcome(planned.changes) == {
            MOVE.uuid: ("released", "new"),
            "source": ("held", "only"),
        }
        (home,) = planned.changes.instances
        assert (home.host, home.node, home.flavor, home.old_flavor, home.new_flavor) == (
            ELSEWHERE.host,
            ELSEWHERE.uuid,
            F1,
            None,
            None,
        )


@pytest.mark.parametrize(
    ("kind", "ended"),
    [
        ("resize", "cancelled"),
        ("migration", "cancelled"),
        ("live-migration", "cancelled"),
        ("evacuation", "failed"),
    ],
)
@pytest.mark.parametrize("status", UNDER_WAY)
@pytest.mark.parametrize("dropped", [True, False])
def test_a_move_that_is_given_up_leaves_the_source_as_the_only_claim(
    kind: str, ended: str, status: str, dropped: bool
) -> None:
    known = under_way(status, kind, new=replace(NEW, state="released") if dropped else NEW)
    changes = moves.abort(known, NOW).changes
    assert outcome(changes) == {
        **({} if dropped else {MOVE.uuid: ("released", "new")}),
        "source": ("held", "only"),
    }
    assert [migration.status for migration in changes.migrations] == [ended]
    assert [(instance.old_flavor, instance.new_flavor) for instance in changes.instances] == [
        (None, None)
    ]


# --- every field that a step writes ---------------------------------------------------------------

MOVING = replace(I1, old_flavor=F1, new_flavor=F3)
ARRIVED_NEW = replace(NEW, state="consumed")
ARRIVED_GUEST = replace(MOVING, host=HERE.host, node=HERE.uuid, flavor=F3)
RELEASED_OLD = replace(OLD, state="released", updated_at=NOW)
SOURCE_AGAIN = replace(SOURCE, updated_at=NOW)
# Where the destination has a store of its own, the source has this in place of the new half.
DEPARTURE = replace(NEW, node=ELSEWHERE.uuid, state="released")


def departing(status: str = "pre-migrating", kind: str = "resize", **fields: Any) -> StoredState:
    """What a source says of a move to a host with a store of its own."""
    return replace(under_way(status, kind, new=DEPARTURE), **fields)


def at(status: str, kind: str = "resize") -> Migration:
    return replace(MOVE, status=status, type=kind, updated_at=NOW)  # type: ignore[arg-type]


def test_an_arrival_writes_the_guest_its_claim_and_the_move() -> None:
    arrived = replace(ARRIVED_NEW, updated_at=NOW)
    assert moves.finish(under_way(), NOW) == PlannedChange(
        arrived,
        RecordChanges(
            instances=(replace(ARRIVED_GUEST, updated_at=NOW),),
            migrations=(at("finished"),),
            claims=(arrived,),
        ),
    )


def test_a_resize_without_a_new_flavor_keeps_the_one_that_the_guest_has() -> None:
    known = under_way(instance=replace(MOVING, new_flavor=None))
    assert [found.flavor for found in moves.finish(known, NOW).changes.instances] == [F1]
    other = under_way(kind="migration", instance=MOVING)
    assert [found.flavor for found in moves.finish(other, NOW).changes.instances] == [F1]


def test_a_confirmation_writes_the_guest_its_claim_and_the_move() -> None:
    kept = replace(ARRIVED_NEW, half="only", migration=None, updated_at=NOW)
    assert moves.confirm(finished(), NOW) == PlannedChange(
        kept,
        RecordChanges(
            instances=(replace(ARRIVED_GUEST, old_flavor=None, new_flavor=None, updated_at=NOW),),
            migrations=(at("confirmed"),),
            claims=(RELEASED_OLD, kept),
        ),
    )


def test_a_revert_writes_the_guest_both_claims_and_the_move() -> None:
    gone = replace(ARRIVED_NEW, state="released", updated_at=NOW)
    back = replace(I1, task_state="resize_reverting", updated_at=NOW)
    assert moves.revert(finished(task_state="resize_reverting"), NOW) == PlannedChange(
        gone,
        RecordChanges(instances=(back,), migrations=(at("reverted"),), claims=(gone, SOURCE_AGAIN)),
    )


def test_a_revert_without_an_old_flavor_keeps_the_one_that_the_guest_has() -> None:
    known = finished(task_state="resize_reverting", old_flavor=None)
    assert [found.flavor for found in moves.revert(known, NOW).changes.instances] == [F3]


def test_an_abort_writes_the_guest_both_claims_and_the_move() -> None:
    gone = replace(NEW, state="released", updated_at=NOW)
    assert moves.abort(under_way(), NOW) == PlannedChange(
        gone,
        RecordChanges(
            instances=(replace(I1, updated_at=NOW),),
            migrations=(at("cancelled"),),
            claims=(gone, SOURCE_AGAIN),
        ),
    )


@pytest.mark.parametrize("known", [None, I1])
def test_an_abort_leaves_a_guest_that_was_to_keep_its_flavor_alone(known: Any) -> None:
    assert moves.abort(under_way(instance=known), NOW).changes.instances == ()


def test_an_abort_ends_the_rest_of_a_move_whose_record_says_error() -> None:
    changes = moves.abort(under_way("error"), NOW).changes
    assert outcome(changes) == {MOVE.uuid: ("released", "new"), "source": ("held", "only")}
    assert changes.migrations == ()


@pytest.mark.parametrize(
    ("step", "known"),
    [
        (moves.finish, under_way("failed", new=replace(NEW, state="released"))),
        (moves.finish, under_way(new=replace(NEW, state="released"))),
        (moves.finish, under_way("cancelled")),
        (moves.finish, departing("failed")),
        (moves.confirm, under_way()),
        (moves.confirm, departing()),
        (moves.revert, departing()),
        (moves.abort, finished()),
        (moves.abort, departing("finished")),
        (moves.abort, departing("completed", "live-migration")),
    ],
)
def test_a_step_out_of_order_is_refused_with_the_status_of_the_move(step: Any, known: Any) -> None:
    with pytest.raises(WrongState, match=f"is {known.migration.status}") as caught:
        step(known, NOW)
    assert caught.value.remedy


@pytest.mark.parametrize("step", [moves.finish, moves.confirm, moves.revert])
def test_a_step_of_a_guest_whose_record_is_gone_is_refused(step: Any) -> None:
    known = under_way("migrating") if step is moves.finish else finished()
    with pytest.raises(UnknownClaim, match="the moved instance is gone") as caught:
        step(replace(known, instance=None), NOW)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "known",
    [StoredState(I1, MOVE, SOURCE, (SOURCE,)), StoredState(I1, None, NEW, (OLD, NEW))],
)
@pytest.mark.parametrize(
    "step",
    [
        moves.finish,
        moves.confirm,
        moves.revert,
        moves.abort,
        lambda known, now: moves.progress(known, now, "migrating"),
        lambda known, now: moves.drop_half(known, now, "old"),
    ],
)
def test_a_claim_that_is_no_move_takes_no_step_of_one(step: Any, known: StoredState) -> None:
    with pytest.raises(UnknownClaim, match=f"claim {known.claim.id} is no move") as caught:  # type: ignore[union-attr]
        step(known, NOW)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("step", "status"),
    [(moves.confirm, "confirmed"), (moves.revert, "reverted"), (moves.finish, "confirmed")],
)
def test_a_step_that_is_repeated_answers_with_the_claim_of_the_move(step: Any, status: str) -> None:
    assert step(finished(status), NOW) == PlannedChange(ARRIVED_NEW)


# --- how far a move has come ----------------------------------------------------------------------


@pytest.mark.parametrize("before", STATUSES)
@pytest.mark.parametrize("after", STATUSES)
def test_a_move_comes_on_and_never_goes_back(before: Any, after: Any) -> None:
    known = under_way(before)
    waits = before == "finished" and after in ARRIVED
    on = (
        before in UNDER_WAY
        and after in UNDER_WAY
        and UNDER_WAY.index(after) >= UNDER_WAY.index(before)
    )
    if before == after and before not in UNDER_WAY:
        assert moves.progress(known, NOW, after) == PlannedChange(NEW)
    elif on or waits:
        assert moves.progress(known, NOW, after) == PlannedChange(
            NEW, RecordChanges(migrations=(at(after),))
        )
    else:
        with pytest.raises(WrongState, match=f"is {before}, and cannot become {after}") as caught:
            moves.progress(known, NOW, after)
        assert caught.value.remedy


@pytest.mark.parametrize(("age", "written"), [(0, False), (59, False), (60, True), (61, True)])
def test_the_same_progress_is_written_once_a_minute(age: float, *, written: bool) -> None:
    known = under_way(migration=replace(MOVE, updated_at=NOW - age))
    planned = moves.progress(known, NOW, "pre-migrating")
    assert planned == PlannedChange(
        NEW, RecordChanges(migrations=(at("pre-migrating"),)) if written else RecordChanges()
    )


# --- one half by the move's id --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "half", "refused"),
    [
        # The guest is at the source until it has arrived.
        (under_way(), "old", True),
        (under_way(), "new", False),
        (under_way("error"), "old", True),
        (under_way("error", instance=replace(MOVING, node=HERE.uuid)), "old", False),
        (under_way("error", instance=None), "old", False),
        (under_way("cancelled"), "old", True),
        (under_way("cancelled", instance=replace(MOVING, node=None)), "old", False),
        (under_way("finished"), "old", False),
        (under_way("finished"), "new", True),
        (finished(), "old", False),
        (finished(), "new", True),
        (finished("reverting"), "old", True),
        (finished("reverting"), "new", False),
        (finished("confirming"), "old", False),
        (finished("confirming"), "new", True),
        (finished("error"), "new", True),
        (finished("error"), "old", False),
    ],
)
def test_a_half_where_the_guest_is_or_may_be_is_not_dropped(
    known: StoredState, half: Any, *, refused: bool
) -> None:
    if refused:
        where = "source" if half == "old" else "destination"
        with pytest.raises(WrongState, match=f"its guest is at the {where}, .* is ") as caught:
            moves.drop_half(known, NOW, half)
        assert caught.value.remedy
        return
    planned = moves.drop_half(known, NOW, half)
    assert known.claim is not None
    if half == "new":
        gone = replace(known.claim, state="released", updated_at=NOW)
        assert planned == PlannedChange(gone, RecordChanges(claims=(gone,)))
    else:
        status = known.migration.status  # type: ignore[union-attr]
        waits = (at("confirming"),) if status == "finished" else ()
        assert planned == PlannedChange(
            known.claim, RecordChanges(claims=(RELEASED_OLD,), migrations=waits)
        )


@pytest.mark.parametrize("half", ["old", "new"])
def test_a_half_that_was_dropped_before_changes_nothing(half: Any) -> None:
    known = finished(task_state=None)
    known = replace(known, claims=())
    assert moves.drop_half(known, NOW, half) == PlannedChange(ARRIVED_NEW)


def test_devices_that_are_put_to_use_are_those_of_claims_at_the_destination() -> None:
    mine = device(HERE, "0000:01:00.0", holder=MOVE.uuid, state="claimed")
    in_use = device(HERE, "0000:02:00.0", holder=MOVE.uuid, state="allocated")
    there = device(ELSEWHERE, "0000:03:00.0", holder="port-n2", state="claimed")
    used = replace(PORT_HERE, state="consumed")
    known = replace(under_way(), claims=(OLD, NEW, PORT_THERE, used), devices=(mine, in_use, there))
    changes = moves.finish(known, NOW).changes
    assert changes.devices == (replace(mine, state="allocated"),)
    assert [found.id for found in changes.claims] == [MOVE.uuid]
    waiting = replace(known, claims=(OLD, NEW, PORT_HERE))
    assert replace(PORT_HERE, state="consumed", updated_at=NOW) in (
        moves.finish(waiting, NOW).changes.claims
    )
