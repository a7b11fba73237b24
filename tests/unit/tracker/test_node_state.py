"""The state of a node: that it is the same whether it was kept up to date or read anew, and what it
tells.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.model.instance import Amounts, Instance
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import Claim, Migration, NodeRecords, RecordChanges
from agent.store.records import Records
from agent.store.store import open_store
from agent.tracker.node_record import HostCapacity
from agent.tracker.node_state import NodeState
from agent.tracker.reconcile import ObservedHost, ReconcileRules, Reconciliation, reconcile
from agent.tracker.stored_state import StoredState
from agent.tracker.verdicts import release_claims
from tests.support.tracking import F1, F3, domain, guest
from tests.unit.store.record_samples import claim, device, instance, migration, new_uuid, node, unit
from tests.unit.tracker.samples import (
    ELSEWHERE,
    HERE,
    HOST,
    STATUSES,
    TYPES,
    gpus,
    guest_here,
    pinned,
    state,
)

Step = Callable[[st.DrawFn, NodeState], RecordChanges]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Records]:
    """A store, for all examples."""
    path: Path = tmp_path_factory.mktemp("state")
    with open_store(path) as store:
        yield Records(store)


# --- what can happen to a node's records ----------------------------------------------------------


def some(draw: st.DrawFn, of: Any) -> Any:
    """One of them, or None if there is none."""
    found = sorted(of, key=repr)
    return draw(st.sampled_from(found)) if found else None


def comes(draw: st.DrawFn, now: NodeState) -> RecordChanges:
    """A guest comes, perhaps with pins that another has, perhaps only on its way."""
    cells = draw(
        st.lists(
            st.sampled_from(
                [pinned(0, 4), pinned(0, 5, 6), pinned(1, 12), pinned(1, 12, 13), pinned(7, 99)]
            ),
            max_size=2,
            unique_by=str,
        )
    )
    owned = instance(host="HA", node=draw(st.sampled_from([now.node.uuid, None])))
    amounts = Amounts(*draw(st.tuples(*[st.integers(0, 4096)] * 3)))
    return RecordChanges(
        instances=(owned,),
        claims=(
            claim(
                owned,
                now.node,
                amounts=amounts,
                cells=tuple(cells),
                created_at=float(draw(st.integers(0, 3))),
            ),
        ),
    )


def goes(draw: st.DrawFn, now: NodeState) -> RecordChanges:
    """A claim is given back, with all that it holds."""
    one = some(draw, now.claims.values())
    return (
        RecordChanges()
        if one is None
        else release_claims(
            [one],
            StoredState(devices=tuple(now.devices.values()), units=tuple(now.units.values())),
            5.0,
        )
    )


def changes(draw: st.DrawFn, now: NodeState) -> RecordChanges:
    """A claim changes its state, or its cells."""
    one = some(draw, now.claims.values())
    if one is None:
        return RecordChanges()
    other = draw(
        st.sampled_from(
            [
                {"state": "consumed"},
                {"cells": ()},
                {"cells": (pinned(0, 7),)},
                {"amounts": Amounts(1, 2, 3)},
            ]
        )
    )
    return RecordChanges(claims=(replace(one, **other),))


def moves(draw: st.DrawFn, now: NodeState) -> RecordChanges:
    """A guest moves, to here or from here or between others."""
    one = some(draw, now.claims.values())
    if one is None:
        return RecordChanges()
    ends = draw(
        st.sampled_from(
            [
                (now.node.uuid, ELSEWHERE.uuid),
                (ELSEWHERE.uuid, now.node.uuid),
                (ELSEWHERE.uuid, ELSEWHERE.uuid),
            ]
        )
    )
    move = migration(now.instances[one.instance], source_node=ends[0], dest_node=ends[1])
    named = draw(st.booleans())
    return RecordChanges(
        migrations=(move,), claims=(replace(one, half="old", migration=move.uuid),) if named else ()
    )


def arrives(draw: st.DrawFn, now: NodeState) -> RecordChanges:
    """A move ends, and the claims that name it may go on to."""
    one = some(draw, now.migrations.values())
    return (
        RecordChanges()
        if one is None
        else RecordChanges(
            migrations=(
                replace(one, status=draw(st.sampled_from(["finished", "confirmed", "error"]))),
            )
        )
    )


def lives(draw: st.DrawFn, now: NodeState) -> RecordChanges:
    """An instance becomes something else, or somebody else's."""
    one = some(draw, now.instances.values())
    if one is None:
        return RecordChanges()
    other = draw(
        st.sampled_from(
            [
                {"deleted": True},
                {"vm_state": "active"},
                {"host": "HB", "node": ELSEWHERE.uuid},
                {"host": None, "node": None},
            ]
        )
    )
    return RecordChanges(instances=(replace(one, **other),))


def plugged(draw: st.DrawFn, now: NodeState) -> RecordChanges:
    """A device and a unit come."""
    # The version is never the same twice.
    number = now.node.version
    return RecordChanges(
        devices=(device(now.node, f"0000:{number:02x}:00.0"),),
        units=(unit(now.node, f"ns_{number}"),),
    )


def taken(draw: st.DrawFn, now: NodeState) -> RecordChanges:
    """A claim gets a device and a unit."""
    one, free = (
        some(draw, now.claims.values()),
        some(draw, [row for row in now.devices.values() if row.holder is None]),
    )
    unit_ = some(draw, [row for row in now.units.values() if row.holder is None])
    if one is None or free is None or unit_ is None:
        return RecordChanges()
    return RecordChanges(
        devices=(replace(free, holder=one.id, state="claimed"),),
        units=(replace(unit_, holder=one.id),),
    )


def unplugged(draw: st.DrawFn, now: NodeState) -> RecordChanges:
    """A device and a unit go; those that are held only from the host."""
    device_, unit_ = some(draw, now.devices.values()), some(draw, now.units.values())
    if device_ is None or unit_ is None:
        return RecordChanges()
    if device_.holder is None and unit_.holder is None:
        return RecordChanges(dropped_devices=(device_,), dropped_units=(unit_,))
    return RecordChanges(
        devices=(replace(device_, present=False),), units=(replace(unit_, present=False),)
    )


def built(draw: st.DrawFn, now: NodeState) -> RecordChanges:
    """The node's own record changes."""
    return RecordChanges(nodes=(replace(now.node, failed_builds=now.node.failed_builds + 1),))


def happens_elsewhere(draw: st.DrawFn, now: NodeState) -> RecordChanges:
    """Something happens that is none of the node's business."""
    stranger = instance(host="HB", node=ELSEWHERE.uuid)
    return RecordChanges(instances=(stranger,), claims=(claim(stranger, ELSEWHERE),))


STEPS: tuple[Step, ...] = (
    comes,
    goes,
    changes,
    moves,
    arrives,
    lives,
    plugged,
    taken,
    unplugged,
    built,
    happens_elsewhere,
)


def read(records: Records, uuid: ProviderUuid) -> NodeState:
    """The state that the store shows."""
    with records.reading() as reading:
        found = reading.load(uuid)
    assert found is not None
    return NodeState.of(found, HOST)


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_state_kept_up_to_date_is_the_state_read_anew(
    records: Records, data: st.DataObject
) -> None:
    with records.transaction([]) as transaction:
        mine = node("HA", f"host of {new_uuid()}")
        first = RecordChanges(
            nodes=(mine, *(() if transaction.node(ELSEWHERE.uuid) else (ELSEWHERE,)))
        )
        transaction.write(first)
    now = read(records, mine.uuid)
    for step in data.draw(st.lists(st.sampled_from(STEPS), max_size=14)):
        planned = step(data.draw, now)
        with records.transaction([mine.uuid]) as transaction:
            transaction.write(planned)
        now = now.after(planned)
        assert now == read(records, mine.uuid), step.__name__


# --- what it tells --------------------------------------------------------------------------------


def test_the_guest_that_an_operation_is_about_is_known_with_its_claim() -> None:
    coming = instance(host="HB", node=ELSEWHERE.uuid, version=3)
    incoming = RecordChanges(claims=(claim(coming, HERE, half="new"),))
    assert state().after(incoming, coming).instances == {coming.uuid: coming}
    assert state().after(RecordChanges(), coming).instances == {}


def test_a_claim_looks_at_no_other_guest_of_the_node() -> None:
    """Else it would cost more, the more guests there are."""

    class Unread(dict[Any, Any]):
        """Records that can be copied and looked up, and not gone through one by one."""

        def values(self) -> Any:
            raise AssertionError("all records are looked at")

        items = __iter__ = values

        def keys(self) -> Any:
            return dict.keys(self)

    others = [guest_here() for _ in range(3)]
    found = state(
        instances=others,
        claims=[claim(one, HERE, cells=(pinned(0, cpu),)) for cpu, one in enumerate(others)],
        devices=gpus(2),
    )
    unread = replace(
        found,
        **{
            name: Unread(getattr(found, name))
            for name in ("claims", "instances", "migrations", "devices", "units")
        },
    )
    coming = instance(host="HA", node=HERE.uuid)
    changes = RecordChanges(instances=(coming,), claims=(claim(coming, HERE),))
    assert unread.after(changes) == found.after(changes)


# --- the audit of a node's records as a whole ---


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
