"""The audit of a node's records as a whole: done twice it does nothing more, and it never takes
what is not proven to be over.
"""

from collections import Counter
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.claim import Claim, Migration
from agent.model.instance import Amounts, Instance
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import NodeRecords, RecordChanges
from agent.tracker.node_record import HostCapacity
from agent.tracker.node_state import NodeState
from agent.tracker.reconcile import ObservedHost, ReconcileRules, Reconciliation, reconcile
from tests.support.tracking import F1, F3, domain, guest
from tests.unit.store.record_samples import claim, device, instance, migration, unit
from tests.unit.tracker.samples import ELSEWHERE, HERE, STATUSES, TYPES

NOW, WAIT = 1_000_000.0, 3600.0
RULES = ReconcileRules(stranded_after=WAIT)
WHO = [guest(f"i{number}") for number in range(3)]
MOVES = [guest(f"m{number}") for number in range(3)]
ADDRESSES = [f"0000:{number:02x}:00.0" for number in range(3)]
UNITS = ["ns_0", "ns_1"]
PLACES = [None, HERE.uuid, ELSEWHERE.uuid]


def done(
    records: NodeRecords, shown: ObservedHost | None = None, *, rules: ReconcileRules = RULES
) -> Reconciliation:
    return reconcile(records, shown or ObservedHost(), rules, NOW)


def written(records: NodeRecords, changes: RecordChanges) -> NodeRecords:
    """The records once the changes are written, as they are read then."""
    state = NodeState.of(records, HostCapacity()).after(changes)
    return NodeRecords(
        state.node,
        tuple(state.claims.values()),
        tuple(state.instances.values()),
        tuple(state.migrations.values()),
        tuple(state.devices.values()),
        tuple(state.units.values()),
        records.damaged,
    )


# --- any records that there can be ----------------------------------------------------------------


@st.composite
def an_instance(draw: st.DrawFn, uuid: ConsumerUuid) -> Instance:
    return instance(
        uuid=uuid,
        host="HA",
        node=draw(st.sampled_from(PLACES)),
        flavor=F1,
        vm_state=draw(
            st.sampled_from(
                ["building", "active", "resized", "deleted", "error", "shelved_offloaded"]
            )
        ),
        task_state=draw(st.sampled_from([None, "spawning", "resize_prep", "migrating"])),
        deleted=draw(st.booleans()),
        old_flavor=draw(st.sampled_from([None, F1])),
        new_flavor=draw(st.sampled_from([None, F3])),
    )


@st.composite
def a_move(draw: st.DrawFn, uuid: ConsumerUuid) -> Migration:
    return Migration(
        uuid=uuid,
        instance=draw(st.sampled_from(WHO)),
        type=draw(st.sampled_from(TYPES)),
        status=draw(st.sampled_from(STATUSES)),
        source_compute="HA",
        source_node=draw(st.sampled_from(PLACES[1:])),
        dest_compute="HA",
        dest_node=draw(st.sampled_from(PLACES)),
    )


@st.composite
def some_claims(draw: st.DrawFn, moves: list[Migration]) -> list[Claim]:
    """What one guest can have of the node: the only claim, a half or both of one move,
    and devices.
    """
    claims = []
    for who in WHO:
        mine = [None, *(move for move in moves if move.instance == who)]
        move = draw(st.sampled_from(mine))
        halves = (
            ["only"] if move is None else draw(st.sampled_from([["old"], ["new"], ["old", "new"]]))
        )
        for half in draw(st.sampled_from([halves, []])):
            claims.append(_claim(draw, who, half, move, "move" if half == "new" else "instance"))
        if draw(st.booleans()):
            claims.append(_claim(draw, who, "only", None, "devices"))
    return claims


def _claim(
    draw: st.DrawFn, who: ConsumerUuid, half: Any, move: Migration | None, purpose: Any
) -> Claim:
    return Claim(
        id=f"{purpose}-{half}-{who}",
        purpose=purpose,
        instance=who,
        node=HERE.uuid,
        half=half,
        migration=move.uuid if move is not None else None,
        origin=move.uuid if move is not None else None,
        state=draw(st.sampled_from(["held", "consumed"])),
        amounts=Amounts(1024, 1, 0),
        updated_at=NOW - draw(st.sampled_from([0.0, WAIT])),
    )


@st.composite
def situations(draw: st.DrawFn) -> tuple[NodeRecords, ObservedHost]:
    moves = [draw(a_move(uuid)) for uuid in draw(st.sets(st.sampled_from(MOVES)))]
    claims = draw(some_claims(moves))
    claimed = {claim.instance for claim in claims}
    instances = [
        one
        for who in draw(st.sets(st.sampled_from(WHO)))
        if _read((one := draw(an_instance(who))), claimed)
    ]
    holders = st.sampled_from([None, "nobody", *(claim.id for claim in claims)])

    def held(row: Any) -> Any:
        holder = draw(holders)
        given = (
            {}
            if not hasattr(row, "state")
            else {"state": "available" if holder is None else "allocated"}
        )
        return replace(row, holder=holder, present=draw(st.booleans()), **given)

    devices = tuple(
        held(device(HERE, address)) for address in draw(st.sets(st.sampled_from(ADDRESSES)))
    )
    units = tuple(held(unit(HERE, name)) for name in draw(st.sets(st.sampled_from(UNITS))))
    shown = ObservedHost(
        NOW,
        draw(
            st.none()
            | st.builds(
                tuple,
                st.lists(
                    st.sampled_from([device(HERE, address, numa_node=1) for address in ADDRESSES]),
                    unique_by=lambda row: row.address,
                ),
            )
        ),
        draw(
            st.none()
            | st.builds(
                tuple,
                st.lists(
                    st.sampled_from([unit(HERE, identifier) for identifier in UNITS]),
                    unique_by=lambda row: row.identifier,
                ),
            )
        ),
        draw(st.sampled_from([None, (), (domain("i0", 512), domain("stray", 512))])),
    )
    moves = [
        move
        for move in moves
        if (not move.ended and HERE.uuid in (move.source_node, move.dest_node))
        or move.uuid in {c.migration for c in claims}
    ]
    return NodeRecords(HERE, tuple(claims), tuple(instances), tuple(moves), devices, units), shown


def _read(one: Instance, claimed: set[ConsumerUuid]) -> bool:
    """Whether the node's records tell of it."""
    return one.uuid in claimed or (one.node == HERE.uuid and not one.deleted)


# --- properties -----------------------------------------------------------------------------------


@given(situations())
def test_done_twice_it_changes_nothing_the_second_time(
    situation: tuple[NodeRecords, ObservedHost],
) -> None:
    records, shown = situation
    first = done(records, shown)
    again = done(written(records, first.changes), shown)
    assert again.changes == RecordChanges()
    assert again.orphans == first.orphans


@given(situations())
def test_no_record_is_written_twice(situation: tuple[NodeRecords, ObservedHost]) -> None:
    records, shown = situation
    changes = done(records, shown).changes
    keys = {
        "nodes": "uuid",
        "instances": "uuid",
        "migrations": "uuid",
        "claims": "id",
        "devices": "address",
        "units": "identifier",
    }
    for field in fields(changes):
        name = field.name.removeprefix("dropped_")
        rows = getattr(changes, name) + getattr(changes, f"dropped_{name}", ())
        counts = Counter(getattr(row, keys.get(name, "node")) for row in rows)
        assert not [key for key, count in counts.items() if count > 1]


@given(situations())
def test_what_is_held_is_held_by_a_claim_that_stays(
    situation: tuple[NodeRecords, ObservedHost],
) -> None:
    records, shown = situation
    after = written(records, done(records, shown).changes)
    staying = {claim.id for claim in after.claims}
    for row in (*after.devices, *after.units):
        assert row.holder is None or row.holder in staying
        assert row.present or row.holder is not None
    assert all((device.holder is None) == (device.state == "available") for device in after.devices)
    # Nothing that a claim has and keeps is taken from it.
    for before in (*records.devices, *records.units):
        if before.holder in staying:
            assert before.holder in {row.holder for row in (*after.devices, *after.units)}


@given(situations())
def test_a_guest_that_is_here_keeps_room_if_it_had_some(
    situation: tuple[NodeRecords, ObservedHost],
) -> None:
    records, shown = situation
    after = written(records, done(records, shown).changes)
    room = {claim.instance for claim in records.claims if claim.purpose != "devices"}
    left = {claim.instance for claim in after.claims if claim.purpose != "devices"}
    for recorded in records.instances:
        moves = [
            move
            for move in records.migrations
            if move.uuid in {c.migration for c in records.claims if c.instance == recorded.uuid}
        ]
        if (
            recorded.node == HERE.uuid
            and not recorded.removed
            and recorded.uuid in room
            and not any(move.same_node for move in moves)
        ):
            assert recorded.uuid in left


# --- what one audit tells and the next one does ---------------------------------------------------


@pytest.fixture
def resting() -> NodeRecords:
    """A resize from elsewhere to here of which nobody has heard for too long."""
    who = instance(
        uuid=WHO[0],
        host="HB",
        node=ELSEWHERE.uuid,
        vm_state="active",
        flavor=F1,
        old_flavor=F1,
        new_flavor=F3,
    )
    move = migration(
        who, uuid=MOVES[0], status="pre-migrating", source_node=ELSEWHERE.uuid, dest_node=HERE.uuid
    )
    held = claim(
        who,
        HERE,
        purpose="move",
        half="new",
        migration=move.uuid,
        origin=move.uuid,
        updated_at=NOW - WAIT,
    )
    return NodeRecords(HERE, (held,), (who,), (move,))


def test_a_task_state_alone_is_no_progress(resting: NodeRecords) -> None:
    left = replace(
        resting,
        instances=tuple(
            replace(instance, task_state="resize_migrating") for instance in resting.instances
        ),
    )
    (drift,) = done(left).drift
    assert (drift.kind, "no progress is reported" in drift.detail) == ("stranded-claim", True)


@pytest.mark.parametrize(
    ("half", "status"), [("old", "error"), ("old", "reverted"), ("new", "confirmed")]
)
def test_a_guest_whose_claim_is_the_only_one_again_becomes_nothing_else(
    half: Any, status: Any
) -> None:
    who = instance(
        uuid=WHO[0],
        host="HA",
        node=HERE.uuid,
        vm_state="active",
        flavor=F1,
        old_flavor=F1,
        new_flavor=F3,
    )
    move = migration(
        who, uuid=MOVES[0], status=status, source_node=ELSEWHERE.uuid, dest_node=HERE.uuid
    )
    room = claim(who, HERE, half=half, migration=move.uuid, origin=move.uuid)
    changes = done(NodeRecords(HERE, (room,), (who,), (move,))).changes
    assert [(claim.half, claim.migration, claim.origin) for claim in changes.claims] == [
        ("only", None, move.uuid)
    ]
    assert changes.instances == (replace(who, old_flavor=None, new_flavor=None, updated_at=NOW),)


# --- moves that exclude each other ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "dest", "after"),
    [
        ("queued", HERE.uuid, None),
        ("accepted", HERE.uuid, None),
        ("pre-migrating", HERE.uuid, "error"),
        ("running", HERE.uuid, "error"),
        ("finished", HERE.uuid, None),
        ("pre-migrating", ELSEWHERE.uuid, None),
        ("pre-migrating", None, None),
    ],
)
def test_another_move_that_has_begun_is_in_error_if_it_leads_here(
    resting: NodeRecords, status: Any, dest: ProviderUuid | None, after: str | None
) -> None:
    other = replace(resting.migrations[0], uuid=MOVES[1], status=status, dest_node=dest)
    changes = done(replace(resting, migrations=(*resting.migrations, other))).changes
    assert [(migration.uuid, migration.status) for migration in changes.migrations] == (
        [(other.uuid, after)] if after else []
    )


# --- devices and damage ---------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["accepted", "done"])
def test_a_guest_is_counted_once_after_an_evacuation_of_which_both_halves_are_here(
    status: str,
) -> None:
    who = instance(uuid=WHO[0], host="HA", node=HERE.uuid, vm_state="active")
    move = migration(
        who,
        uuid=MOVES[0],
        type="evacuation",
        status=status,
        source_node=HERE.uuid,
        dest_node=None,
    )
    halves = tuple(
        claim(who, HERE, id=half, half=half, migration=move.uuid, origin=move.uuid)
        for half in ("old", "new")
    )
    records = NodeRecords(HERE, halves, (who,), (move,))
    first = done(records)
    assert {found.half: found.state for found in first.changes.claims} == {
        "old": "released",
        "only": "consumed",
    }
    assert done(written(records, first.changes)).changes == RecordChanges()
