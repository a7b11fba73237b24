"""The judgement of consumers: what it may never do, whatever the records say, and what its rules do
not show one by one.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.model.allocation import Allocation
from agent.model.claim import STATUSES, TYPES, Migration
from agent.model.instance import Instance
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.operation import DeleteAllocations, SetAllocations
from agent.tracker.allocations import (
    AllocationShare,
    Removal,
    judge_allocations,
    removal_operations,
)
from agent.tracker.consumer_records import TreeConsumers
from tests.support.consumer_book import HOST, claim, instance

NODE, CELL, ELSEWHERE = (ProviderUuid(f"node-{name}") for name in ("a", "a-cell", "b"))
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
    type=st.sampled_from(sorted(TYPES)),
    status=st.sampled_from(sorted(STATUSES)),
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


def test_the_age_of_an_unknown_consumer_is_that_of_the_first_audit_that_met_it() -> None:
    first = judge_allocations(holding(WHO[0]), records([]), {}, NOW, GRACE)
    assert first.unknown_since == {WHO[0]: NOW}
    assert judge_allocations(
        holding(WHO[0], WHO[1]), records([]), first.unknown_since, NOW + 60, GRACE
    ).unknown_since == {WHO[0]: NOW, WHO[1]: NOW + 60}
    assert judge_allocations(
        holding(WHO[1]), records([]), first.unknown_since, NOW + 60, GRACE
    ).unknown_since == {WHO[1]: NOW + 60}


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


def test_a_record_that_cannot_be_read_protects_its_consumer() -> None:
    verdicts = judge_allocations(
        holding(WHO[0]), records([], unreadable=frozenset({WHO[0]})), {WHO[0]: 0.0}, NOW, 0.0
    )
    assert (verdicts.removals, verdicts.drift, verdicts.unknown_since) == ((), (), {})


@pytest.mark.parametrize("host", ["host-b", None])
def test_names_from_outside_are_shown_escaped(host: str | None) -> None:
    (told,) = judge_allocations(
        holding(WHO[0]), records([instance(WHO[0], host="host\nERROR", node=ELSEWHERE)]), {}, NOW
    ).drift
    assert "\n" not in told.detail
    assert r"host\nERROR" in told.detail


def test_an_old_evacuation_does_not_take_a_guest_that_came_back() -> None:
    known = records([instance(WHO[0], host=HOST, node=NODE)], [migration("m1", WHO[0], **DONE)])
    verdicts = judge_allocations(holding(WHO[0]), known, {}, NOW)
    assert verdicts.removals == ()


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


def test_an_evacuated_instance_that_was_deleted_since_gives_back_what_it_has_here() -> None:
    known = records(
        [instance(WHO[0], host="host-b", node=ELSEWHERE, deleted=True)],
        [migration("m1", WHO[0], **DONE)],
    )
    assert judge_allocations(holding(WHO[0]), known, {}, NOW).removals == (
        Removal(WHO[0], "the instance is deleted", "tree-and-shared"),
    )


# --- from removals to operations ------------------------------------------------------------------


def allocation(*providers: ProviderUuid) -> Allocation:
    return Allocation(WHO[0], {provider: {"VCPU": 1} for provider in providers}, "p", "u", 3)


PARTLY, WHOLLY = Removal(WHO[0], "evacuated"), Removal(WHO[0], "deleted", "all")
SHARED = ProviderUuid("store")


def test_of_an_evacuated_instance_the_whole_tree_is_taken_and_nothing_else() -> None:
    (operation,) = removal_operations(
        [PARTLY], {WHO[0]: allocation(NODE, CELL, ELSEWHERE)}, [NODE, CELL]
    )
    assert isinstance(operation, SetAllocations)
    assert operation.new == {ELSEWHERE: {"VCPU": 1}}
    assert operation.wanted == replace(allocation(ELSEWHERE))


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


@pytest.mark.parametrize(
    ("held", "rest"), [((NODE, SHARED), set()), ((NODE, SHARED, ELSEWHERE), {SHARED, ELSEWHERE})]
)
def test_shared_storage_alone_goes_with_the_tree_and_beside_another_host_stays(
    held: tuple[ProviderUuid, ...], rest: set[ProviderUuid]
) -> None:
    (operation,) = removal_operations(
        [Removal(WHO[0], "it is over", "tree-and-shared")],
        {WHO[0]: allocation(*held)},
        [NODE, CELL],
        [NODE, SHARED],
    )
    assert operation.wanted.resources.keys() == rest


def test_an_evacuation_is_cleared_once_its_instance_holds_nothing_here_or_is_here_again() -> None:
    done, away = migration("m1", WHO[0], **DONE), instance(WHO[0], host="host-b", node=ELSEWHERE)
    assert (
        judge_allocations(holding(WHO[0]), records([away], [done]), {}, NOW).cleared == frozenset()
    )
    assert judge_allocations(holding(WHO[1]), records([], [done]), {}, NOW).cleared == {"m1"}
    assert judge_allocations(
        holding(WHO[0]), records([instance(WHO[0], host=HOST, node=NODE)], [done]), {}, NOW
    ).cleared == {"m1"}
    coming = records(
        [away], [done], claims=(claim(WHO[0], NODE, half="new", migration=ConsumerUuid("m2")),)
    )
    assert judge_allocations(holding(WHO[0]), coming, {}, NOW).cleared == {"m1"}


@given(
    removals=st.lists(
        st.builds(
            Removal, st.sampled_from(WHO), st.just("it is over"), st.sampled_from(["tree", "all"])
        ),
        unique_by=lambda removal: removal.consumer,
    ),
    holders=st.dictionaries(
        st.sampled_from(WHO), st.sets(st.sampled_from([NODE, CELL, ELSEWHERE]), min_size=1)
    ),
)
def test_what_is_elsewhere_goes_only_with_everything(
    removals: list[Removal], holders: dict[ConsumerUuid, set[ProviderUuid]]
) -> None:
    found = {
        consumer: replace(allocation(*tree), consumer=consumer)
        for consumer, tree in holders.items()
    }
    made = {
        removal.old.consumer: removal
        for removal in removal_operations(removals, found, [NODE, CELL])
    }
    assert made.keys() == {
        removal.consumer
        for removal in removals
        if holders.get(removal.consumer, set()) & {NODE, CELL}
    }
    for removal in removals:
        if removal.consumer in made:
            expected = set() if removal.reach == "all" else holders[removal.consumer] & {ELSEWHERE}
            assert made[removal.consumer].wanted.resources.keys() == expected
