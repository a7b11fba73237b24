"""The judgement of consumers: what it may never do, whatever the records say, and what its rules do
not show one by one.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.model.finding import Drift
from agent.model.instance import Instance
from agent.model.inventory import Allocation
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import Migration
from agent.model.operation import DeleteAllocations
from agent.tracker.allocations import (
    AllocationShare,
    Leftover,
    Removal,
    is_beside,
    is_used_elsewhere,
    judge_allocations,
    removal_operations,
)
from agent.tracker.nova_commands import if_died, if_orphaned
from agent.tracker.stored_state import TreeConsumers
from tests.support.consumer_book import HOST, claim, instance
from tests.unit.tracker.samples import STATUSES, TYPES

NODE, CELL, ELSEWHERE = (ProviderUuid(f"node-{name}") for name in ("a", "a-cell", "b"))
SHARED = ProviderUuid("store")
WHO = [ConsumerUuid(f"consumer-{number}") for number in range(4)]
NOW, GRACE = 1_000_000.0, 86400.0
DONE = {
    "type": "evacuation",
    "status": "done",
    "source_compute": HOST,
    "source_node": NODE,
    "dest_compute": "host-b",
    "dest_node": ELSEWHERE,
}


def holding(*consumers: ConsumerUuid, **changes: Any) -> AllocationShare:
    return AllocationShare(
        NODE, {NODE: {consumer: {"VCPU": 1} for consumer in consumers}, CELL: {}}, **changes
    )


def migration(uuid: str, of: str, **fields: Any) -> Migration:
    known = {
        "type": "migration",
        "status": "running",
        "source_compute": HOST,
        "source_node": NODE,
        **fields,
    }
    return Migration(uuid=ConsumerUuid(uuid), instance=ConsumerUuid(of), **known)


def records(
    instances: list[Instance], migrations: list[Migration] | None = None, **changes: Any
) -> TreeConsumers:
    proving = [
        migration
        for migration in migrations or []
        if (migration.type, migration.status, migration.source_compute, migration.source_node)
        == ("evacuation", "done", HOST, NODE)
    ]
    return TreeConsumers(
        host=HOST,
        instances={instance.uuid: instance for instance in instances},
        migrations={migration.uuid: migration for migration in migrations or []},
        evacuations=[migration for migration in proving if not migration.cleared],
        **changes,
    )


INSTANCES = st.builds(
    instance,
    st.sampled_from(WHO),
    host=st.sampled_from([None, HOST, "host-b"]),
    node=st.sampled_from([None, NODE, ELSEWHERE]),
    task_state=st.sampled_from([None, "spawning", "resize_prep"]),
    vm_state=st.sampled_from(["active", "deleted", "resized", "error"]),
    hidden=st.booleans(),
    deleted=st.booleans(),
)
MIGRATIONS = st.builds(
    migration,
    st.sampled_from([*WHO, "m1", "m2"]),
    st.sampled_from([*WHO, "somebody"]),
    type=st.sampled_from(TYPES),
    status=st.sampled_from(STATUSES),
    source_compute=st.sampled_from([HOST, "host-b"]),
    source_node=st.sampled_from([NODE, ELSEWHERE]),
    dest_node=st.sampled_from([NODE, ELSEWHERE]),
    hidden=st.booleans(),
    cleared=st.booleans(),
)
CLAIMS = st.builds(
    claim, st.sampled_from(WHO), st.just(NODE), state=st.sampled_from(["held", "consumed"])
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[AllocationShare, TreeConsumers, Mapping[ConsumerUuid, float]]:
    held = draw(st.sets(st.sampled_from(WHO), min_size=1))
    running = draw(st.none() | st.frozensets(st.sampled_from(WHO)))
    known = records(
        draw(st.lists(INSTANCES, max_size=4)),
        draw(st.lists(MIGRATIONS, max_size=4)),
        claims=tuple(draw(st.lists(CLAIMS, max_size=2))),
        unreadable=frozenset(draw(st.sets(st.sampled_from(WHO), max_size=1))),
    )
    since = {
        consumer: draw(st.floats(0, 2 * NOW)) for consumer in draw(st.sets(st.sampled_from(WHO)))
    }
    return holding(*held, running=running), known, since


@pytest.mark.long
@settings(max_examples=500)
@given(case=cases(), purge_after=st.none() | st.floats(0, 2 * NOW))
def test_only_what_is_proven_to_be_over_is_removed(case: Any, purge_after: float | None) -> None:
    held, known, since = case
    tracked = {claim.instance for claim in known.claims}
    verdicts = judge_allocations(held, known, since, NOW, purge_after)
    for removal in verdicts.removals:
        who = removal.consumer
        assert who in held.consumers[NODE]
        assert who not in tracked
        assert who not in known.unreadable
        guest, move = known.instances.get(who), known.migrations.get(who)
        if removal.reach == "all":
            assert guest is not None
            assert guest.host == HOST
        if removal.leftover is not None:
            assert removal.reach == "tree"
            assert guest is not None
            assert removal.leftover.node == guest.node
            assert not guest.deleted
            assert not guest.hidden
            assert guest.task_state is None
            assert (guest.host, guest.node) != (HOST, NODE)
            assert held.running is not None
            assert who not in held.running
            moves = [
                migration for migration in known.migrations.values() if migration.instance == who
            ]
            assert not any(move.in_progress for move in moves)
            assert removal.leftover.evacuations <= {
                move.uuid
                for move in moves
                if move.type == "evacuation" and move.status == "done" and not move.cleared
            }
            assert removal.leftover.evacuations
        elif guest is not None:
            assert guest.deleted
            assert not guest.hidden
        elif move is not None:
            assert move.ended
            assert not move.hidden
        else:
            assert purge_after is not None
            assert NOW - since[who] > purge_after
            assert held.running is not None
            assert who not in held.running


@given(case=cases())
def test_everybody_is_judged_once(case: Any) -> None:
    held, known, since = case
    verdicts = judge_allocations(held, known, since, NOW, GRACE)
    named = [removal.consumer for removal in verdicts.removals] + [
        verdict.consumer for verdict in verdicts.drift
    ]
    assert len(named) == len(set(named))
    assert set(named) <= {*held.consumers[NODE]}
    assert verdicts.unknown_since.keys() == {
        consumer
        for consumer in held.consumers[NODE]
        if consumer not in known.instances
        and consumer not in known.migrations
        and consumer not in known.unreadable
        and consumer not in {c.instance for c in known.claims}
    }


@given(case=cases())
def test_without_the_option_nobody_unknown_goes(case: Any) -> None:
    held, _, since = case
    verdicts = judge_allocations(held, TreeConsumers(host=HOST), since, NOW, None)
    assert verdicts.removals == ()
    assert {verdict.severity for verdict in verdicts.drift} == {"info"}


@pytest.mark.parametrize(
    ("age", "goes"),
    [(-100.0, False), (0.0, False), (3600.0, False), (GRACE, False), (GRACE + 1, True)],
)
def test_an_unknown_consumer_goes_only_when_it_is_older_than_the_grace(
    age: float, goes: bool
) -> None:
    verdicts = judge_allocations(holding(WHO[0]), records([]), {WHO[0]: NOW - age}, NOW, GRACE)
    assert bool(verdicts.removals) == goes


@pytest.mark.parametrize("running", [None, frozenset(WHO[:1])])
def test_an_unknown_guest_that_runs_here_or_may_keeps_what_it_has(
    running: frozenset[ConsumerUuid] | None,
) -> None:
    verdicts = judge_allocations(
        holding(WHO[0], running=running), records([]), {WHO[0]: NOW - 2 * GRACE}, NOW, GRACE
    )
    assert verdicts.removals == ()
    assert [verdict.kind for verdict in verdicts.drift] == ["orphaned-allocation"]


def test_a_clock_that_was_set_back_does_not_keep_a_consumer_young_for_ever() -> None:
    assert judge_allocations(
        holding(WHO[0]), records([]), {WHO[0]: NOW + 1e9}, NOW, GRACE
    ).unknown_since == {WHO[0]: NOW}


@pytest.mark.parametrize("host", ["host-b", None])
def test_names_from_outside_are_shown_escaped(host: str | None) -> None:
    (told,) = judge_allocations(
        holding(WHO[0]), records([instance(WHO[0], host="host\nERROR", node=ELSEWHERE)]), {}, NOW
    ).drift
    assert "\n" not in told.detail
    assert r"host\nERROR" in told.detail


FROM_HERE = {"source_node": NODE, "dest_node": ELSEWHERE}
TO_HERE = {"source_node": ELSEWHERE, "dest_node": NODE}


@pytest.mark.parametrize(
    ("status", "ends", "goes"),
    [
        *(
            (status, ends, True)
            for status in ("failed", "cancelled")
            for ends in (FROM_HERE, TO_HERE)
        ),
        *(
            (status, ends, False)
            for status in ("running", "finished")
            for ends in (FROM_HERE, TO_HERE)
        ),
        ("error", FROM_HERE, True),
        # What is here may be for the move that failed.
        ("error", TO_HERE, False),
    ],
)
def test_a_move_that_failed_on_its_way_from_here_keeps_no_leftover_of_an_evacuation(
    ends: dict[str, Any], status: str, *, goes: bool
) -> None:
    failed = migration("m0", WHO[0], type="resize", status=status, **ends)
    known = records(
        [instance(WHO[0], host="host-b", node=ELSEWHERE)], [failed, migration("m1", WHO[0], **DONE)]
    )
    verdicts = judge_allocations(holding(WHO[0]), known, {}, NOW)
    assert bool(verdicts.removals) == goes


# --- what each rule says --------------------------------------------------------------------------

GUEST, MOVE = WHO[0], ConsumerUuid("m1")
TWO = {"MEMORY_MB": 2048, "VCPU": 1}
HERE = {"host": HOST, "node": NODE}
THERE = {"host": "host-b", "node": ELSEWHERE}
NOWHERE = {"host": None, "node": None}


def judged(
    consumer: ConsumerUuid, known: TreeConsumers, *, age: float = 0.0, **changes: Any
) -> Removal | Drift | None:
    """The verdict on a consumer that has memory of the node and a CPU of its cell."""
    share = AllocationShare(
        NODE, {NODE: {consumer: {"MEMORY_MB": 2048}}, CELL: {consumer: {"VCPU": 1}}}, **changes
    )
    verdicts = judge_allocations(share, known, {consumer: NOW - age}, NOW, GRACE)
    both = [*verdicts.removals, *verdicts.drift]
    assert len(both) <= 1
    return both[0] if both else None


def orphaned(consumer: ConsumerUuid, severity: Any, detail: str, remedy: str) -> Drift:
    return Drift("orphaned-allocation", severity, detail, remedy, consumer=consumer)


HOLDS = "holds MEMORY_MB 2048, VCPU 1"
REMOVAL = f"agent allocation remove-tree {GUEST} {NODE}"


def away(place: str) -> Drift:
    return orphaned(
        GUEST,
        "warning",
        f"instance {GUEST} {HOLDS} here, but is on {place}",
        "the end of its move removes this share; if it stays, remove this node from its allocation",
    )


def unclaimed(severity: Any) -> Drift:
    return orphaned(
        GUEST,
        severity,
        f"instance {GUEST} (building) {HOLDS}, but is on no host and has no claim",
        f"if it is not about to be built here: agent allocation remove-tree {GUEST} {NODE}",
    )


EVACUATED = [migration(MOVE, GUEST, **DONE)]
LEFTOVER = Removal(
    GUEST,
    "the instance was evacuated to host-b(node-b)",
    leftover=Leftover(frozenset({MOVE}), ELSEWHERE, away("another host: host-b(node-b)")),
)


@pytest.mark.parametrize(
    ("fields", "moves", "running", "expected"),
    [
        # A deleted guest has nothing, wherever its record says it was.
        ({**HERE, "deleted": True}, [], (), Removal(GUEST, "the instance is deleted", "all")),
        (
            {**THERE, "deleted": True},
            [],
            (),
            Removal(GUEST, "the instance is deleted", "tree-and-shared"),
        ),
        # The hidden copy in a move between cells is not what counts.
        ({**HERE, "deleted": True, "hidden": True, "task_state": "deleting"}, [], (), None),
        # On no host: its allocation is made before it is built again.
        ({**NOWHERE, "updated_at": NOW - 599}, [], (), unclaimed("info")),
        ({**NOWHERE, "updated_at": NOW - 600}, [], (), unclaimed("warning")),
        ({**NOWHERE, "task_state": "spawning"}, [], (), None),
        ({**NOWHERE, "hidden": True}, [], (), None),
        # Here without a claim.
        (
            HERE,
            [],
            (),
            orphaned(
                GUEST,
                "warning",
                f"instance {GUEST} (building) is on this node and {HOLDS}, but has no claim",
                "claim it again if it runs; else forget it, and what it holds here goes too: "
                f"agent guests forget {GUEST}",
            ),
        ),
        ({**HERE, "task_state": "rebuilding"}, [], (), None),
        # Elsewhere: the end of its move removes the share.
        (THERE, [], (), away("another host: host-b(node-b)")),
        (
            {"host": HOST, "node": ELSEWHERE},
            [],
            (),
            away(f"another node of this host: {HOST}(node-b)"),
        ),
        ({"host": "host-b", "node": None}, [], (), away("another host: host-b(no node)")),
        # Evacuated from here, and nothing may bring it back.
        (THERE, EVACUATED, (), LEFTOVER),
        (THERE, EVACUATED, (WHO[1],), LEFTOVER),
        (THERE, EVACUATED, (GUEST,), away("another host: host-b(node-b)")),
        (THERE, EVACUATED, None, away("another host: host-b(node-b)")),
        (
            {**THERE, "task_state": "resize_prep"},
            EVACUATED,
            (),
            away("another host: host-b(node-b)"),
        ),
        ({**THERE, "hidden": True}, EVACUATED, (), away("another host: host-b(node-b)")),
        (
            {"host": "host-b", "node": None},
            EVACUATED,
            (),
            away("another host: host-b(no node)"),
        ),
        (
            THERE,
            [migration(MOVE, WHO[1], **DONE)],
            (),
            away("another host: host-b(node-b)"),
        ),
    ],
)
def test_each_rule_of_an_instance_says_what_goes_or_what_to_do(
    fields: dict[str, Any],
    moves: list[Migration],
    running: tuple[ConsumerUuid, ...] | None,
    expected: Removal | Drift | None,
) -> None:
    known = records([instance(GUEST, **fields)], moves)
    shown = None if running is None else frozenset(running)
    assert judged(GUEST, known, running=shown) == expected
    # A claim counts it, and a record that cannot be read may.
    counted = replace(known, claims=(claim(GUEST, NODE),))
    assert judged(GUEST, counted, running=shown) is None
    assert judged(GUEST, replace(known, unreadable=frozenset({GUEST})), running=shown) is None


def test_a_leftover_of_a_guest_whose_node_has_another_store_says_so() -> None:
    known = records([instance(GUEST, **THERE)], EVACUATED, strange_nodes=frozenset({ELSEWHERE}))
    assert LEFTOVER.leftover is not None
    assert judged(GUEST, known) == replace(
        LEFTOVER, leftover=replace(LEFTOVER.leftover, in_other_store=True)
    )


@pytest.mark.parametrize(
    ("age", "running", "expected"),
    [
        (
            GRACE + 3600,
            (),
            Removal(GUEST, "no record has known it for 25 hours", "tree", unknown=True),
        ),
        (
            GRACE,
            (),
            orphaned(
                GUEST,
                "info",
                f"no record knows consumer {GUEST}, which {HOLDS}",
                "wait while the guest is being built or moves; if it is a migration whose server "
                f"does not move: {if_died(GUEST, HOST, REMOVAL)}; if nova does not know it: "
                f"{if_orphaned(GUEST, NODE, REMOVAL)}; or without nova, see its project: agent "
                f"allocation show {GUEST}; if that has no such guest: {REMOVAL}",
            ),
        ),
    ],
)
def test_an_unknown_consumer_is_told_with_what_it_holds(
    age: float, running: tuple[ConsumerUuid, ...], expected: Removal | Drift
) -> None:
    assert judged(GUEST, records([]), age=age, running=frozenset(running)) == expected


GUEST_ON = {"here": HERE, "there": THERE, "unknown": None, "gone": {**HERE, "deleted": True}}


@pytest.mark.parametrize(
    ("status", "guest_is", "fields", "running", "goes"),
    [
        ("running", "there", {}, (), False),
        ("error", "there", {}, (), False),
        ("finished", "there", {}, (), False),
        ("confirmed", "there", {}, (), True),
        ("confirmed", "here", {}, (), True),
        ("completed", "there", {"hidden": True}, (), False),
        ("running", "there", {"hidden": True}, (), False),
        # A move that came to nothing: the guest may have nothing but this.
        ("reverted", "here", {}, (), False),
        ("failed", "here", {}, (), False),
        ("cancelled", "here", {}, (), False),
        ("failed", "there", {}, (), True),
        ("failed", "there", {}, (GUEST,), False),
        ("failed", "there", {}, None, False),
        ("failed", "unknown", {}, (), True),
        ("failed", "unknown", {}, (GUEST,), False),
        ("failed", "gone", {}, (GUEST,), True),
        ("failed", "gone", {}, None, True),
    ],
)
def test_the_allocation_of_a_move_goes_with_its_end_unless_its_guest_may_need_it(
    status: str,
    guest_is: str,
    fields: dict[str, Any],
    running: tuple[ConsumerUuid, ...] | None,
    *,
    goes: bool,
) -> None:
    found = GUEST_ON[guest_is]
    known = records(
        [] if found is None else [instance(GUEST, **found)],
        [migration(MOVE, GUEST, status=status, **fields)],
    )
    shown = None if running is None else frozenset(running)
    over = Removal(MOVE, f"the migration of instance {GUEST} is over ({status})", "tree-and-shared")
    assert judged(MOVE, known, running=shown) == (over if goes else None)


@pytest.mark.parametrize("status", ["failed", "confirmed"])
def test_an_allocation_of_a_move_goes_if_its_guest_holds_the_same(status: str) -> None:
    share = AllocationShare(NODE, {NODE: {GUEST: TWO, MOVE: TWO}, CELL: {}})
    known = records([instance(GUEST, **HERE)], [migration(MOVE, GUEST, status=status)])
    verdicts = judge_allocations(share, known, {}, NOW)
    assert [removal.consumer for removal in verdicts.removals] == [MOVE]
    elsewhere = AllocationShare(NODE, {NODE: {GUEST: TWO}, CELL: {MOVE: TWO}})
    verdicts = judge_allocations(elsewhere, known, {}, NOW)
    assert bool(verdicts.removals) == (status == "confirmed")


@pytest.mark.parametrize(("tracked", "goes"), [(True, False), (False, True)])
def test_a_claim_here_keeps_the_allocation_of_a_move_that_failed(
    *, tracked: bool, goes: bool
) -> None:
    known = records(
        [instance(GUEST, **THERE)],
        [migration(MOVE, GUEST, status="failed")],
        claims=(claim(GUEST, NODE),) if tracked else (),
    )
    assert (judged(MOVE, known) is not None) == goes


@pytest.mark.parametrize(
    ("held", "beside", "used"),
    [
        ({}, False, False),
        ({NODE: {"VCPU": 1}}, False, False),
        ({ELSEWHERE: {"VCPU": 1}}, False, True),
        ({NODE: {"VCPU": 1}, ELSEWHERE: {"DISK_GB": 1}}, True, False),
        ({CELL: {"VCPU": 1}, ELSEWHERE: {"MEMORY_MB": 1}}, True, True),
        ({NODE: {"VCPU": 1}, SHARED: {"DISK_GB": 1}, ELSEWHERE: {"PCPU": 1}}, True, True),
        ({NODE: {"VCPU": 1}, SHARED: {"DISK_GB": 1}}, False, False),
    ],
)
def test_what_a_consumer_has_of_other_trees(held: Any, *, beside: bool, used: bool) -> None:
    found = Allocation(GUEST, held, "p", "u", 1)
    assert is_beside(found, {NODE, CELL}, {ELSEWHERE}) == beside
    assert is_used_elsewhere(found, {NODE, CELL}) == used


def test_an_evacuation_is_cleared_only_by_its_own_instance() -> None:
    done = migration("m1", WHO[0], **DONE)
    known = records(
        [instance(WHO[0], **THERE), instance(WHO[1], **HERE)],
        [done],
        claims=(
            claim(WHO[1], NODE, half="new", migration=ConsumerUuid("m2")),
            claim(WHO[0], NODE, half="old", migration=ConsumerUuid("m3")),
        ),
    )
    assert judge_allocations(holding(WHO[0]), known, {}, NOW).cleared == frozenset()


# --- from removals to operations ------------------------------------------------------------------


def allocation(*providers: ProviderUuid) -> Allocation:
    return Allocation(WHO[0], {provider: {"VCPU": 1} for provider in providers}, "p", "u", 3)


PARTLY, WHOLLY = Removal(WHO[0], "evacuated"), Removal(WHO[0], "deleted", "all")


def test_an_operation_that_leaves_nothing_is_a_deletion() -> None:
    for removal, held in ((PARTLY, (NODE, CELL)), (WHOLLY, (NODE, ELSEWHERE))):
        (operation,) = removal_operations([removal], {WHO[0]: allocation(*held)}, [NODE, CELL])
        assert isinstance(operation, DeleteAllocations)
        assert operation.wanted.resources == {}
        assert operation.wanted.generation == 3
        assert operation.before == {WHO[0]: {consumer: {"VCPU": 1} for consumer in held}}


@pytest.mark.parametrize("found", [{}, {WHO[0]: allocation(ELSEWHERE)}])
def test_who_holds_nothing_here_any_more_is_left_alone(
    found: Mapping[ConsumerUuid, Allocation],
) -> None:
    assert list(removal_operations([PARTLY, WHOLLY], found, [NODE, CELL])) == []
