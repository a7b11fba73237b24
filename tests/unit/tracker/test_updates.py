"""What the life of a guest does to its claims."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.claim import Claim
from agent.model.instance import Instance
from agent.model.node_records import RecordChanges
from agent.tracker.errors import InstanceElsewhere, StaleVersion, UnknownInstance
from agent.tracker.node_record import count_build
from agent.tracker.requests import InstanceUpdate
from agent.tracker.stored_state import StoredState
from agent.tracker.verdicts import update_instance
from tests.unit.store.record_samples import SMALL, claim, instance, migration, unit
from tests.unit.tracker.samples import (
    ELSEWHERE,
    HERE,
    TASK_STATES,
    VM_STATES,
    gpus,
    guest_here,
    holder,
    state,
)

NOW = 7.0
GUEST = guest_here(vm_state="building", task_state="networking", version=4)
HELD = claim(GUEST, HERE)
ATTACHED = claim(GUEST, HERE, purpose="devices")


def updated(known: StoredState, **update: Any) -> RecordChanges:
    """What an update of the node's guest changes."""
    return update_instance(
        state(),
        known,
        InstanceUpdate(**update),
        NOW,
        () if known.migration is None else (known.migration,),
    )


def released_in(changes: RecordChanges) -> set[str]:
    """The claims that are given back."""
    return {claim.id for claim in changes.claims if not claim.open}


def test_what_is_not_said_stays() -> None:
    (one,) = updated(StoredState(GUEST, claims=(HELD,)), task_state=None).instances
    assert one == replace(GUEST, task_state=None, updated_at=NOW)


def test_an_update_that_changes_nothing_writes_nothing() -> None:
    assert (
        updated(StoredState(GUEST, claims=(HELD,)), vm_state="building", task_state="networking")
        == RecordChanges()
    )
    assert updated(StoredState(GUEST, claims=(HELD,))) == RecordChanges()


def test_a_guest_that_runs_has_taken_what_was_held_for_it() -> None:
    changes = updated(StoredState(GUEST, claims=(HELD, ATTACHED)), vm_state="active")
    assert changes.claims == (replace(HELD, state="consumed", updated_at=NOW),)


def test_a_move_is_not_over_because_the_guest_runs() -> None:
    half = claim(GUEST, HERE, purpose="move", half="new")
    assert updated(StoredState(GUEST, claims=(half,)), vm_state="active").claims == ()


@pytest.mark.parametrize(
    "said", [{"deleted": True}, {"vm_state": "deleted"}, {"vm_state": "shelved_offloaded"}]
)
def test_a_guest_that_is_gone_gives_everything_back_wherever_it_was(said: dict[str, Any]) -> None:
    there = claim(GUEST, ELSEWHERE, half="new")
    mine = replace(gpus(1)[0], **holder(HELD))
    held = unit(HERE, holder=HELD.id)
    changes = updated(
        StoredState(
            GUEST, migration(GUEST), claims=(HELD, ATTACHED, there), devices=(mine,), units=(held,)
        ),
        **said,
    )
    assert released_in(changes) == {HELD.id, ATTACHED.id, there.id}
    assert [device.holder for device in (*changes.devices, *changes.units)] == [None, None]
    assert [migration.status for migration in changes.migrations] == [
        migration(GUEST).without_guest
    ]


def test_a_move_that_is_over_stays_as_it_ended() -> None:
    assert (
        updated(
            StoredState(GUEST, migration(GUEST, status="confirmed"), claims=(HELD,)), deleted=True
        ).migrations
        == ()
    )


def test_a_deleted_guest_keeps_its_host_and_a_shelved_one_does_not() -> None:
    (deleted,) = updated(
        StoredState(GUEST, claims=(HELD,)), vm_state="deleted", deleted=True
    ).instances
    assert (deleted.host, deleted.node) == (HERE.host, HERE.uuid)
    (shelved,) = updated(StoredState(GUEST, claims=(HELD,)), vm_state="shelved_offloaded").instances
    assert (shelved.host, shelved.node) == (None, None)


def test_a_guest_that_is_gone_becomes_nothing_else() -> None:
    resizing = replace(GUEST, old_flavor=SMALL, new_flavor=SMALL)
    (one,) = updated(StoredState(resizing, claims=(HELD,)), deleted=True).instances
    assert (one.old_flavor, one.new_flavor) == (None, None)


def test_a_guest_that_was_gone_before_is_gone_once() -> None:
    gone = replace(GUEST, vm_state="deleted", deleted=True)
    assert updated(StoredState(gone), vm_state="deleted", deleted=True) == RecordChanges()


@given(
    st.sampled_from([name for name in VM_STATES if name not in ("deleted", "shelved_offloaded")]),
    st.none() | st.sampled_from(TASK_STATES),
)
def test_whatever_else_becomes_of_a_guest_it_keeps_what_it_has(
    vm_state: Any, task_state: Any
) -> None:
    known = StoredState(GUEST, claims=(HELD, ATTACHED))
    assert released_in(updated(known, vm_state=vm_state, task_state=task_state)) == set()


def test_a_shelved_guest_that_is_built_again_keeps_what_it_has() -> None:
    assert (
        released_in(
            updated(
                StoredState(GUEST, claims=(HELD,)),
                vm_state="shelved_offloaded",
                task_state="spawning",
            )
        )
        == set()
    )


def test_a_version_that_is_not_the_present_one_is_refused() -> None:
    assert updated(StoredState(GUEST, claims=(HELD,)), task_state=None, version=4)
    with pytest.raises(StaleVersion, match="has version 4, not 3"):
        updated(StoredState(GUEST, claims=(HELD,)), task_state=None, version=3)


def test_a_guest_that_nobody_knows_is_refused() -> None:
    with pytest.raises(UnknownInstance):
        updated(StoredState())


@pytest.mark.parametrize(
    ("host", "node", "where"), [("HB", ELSEWHERE.uuid, "HB"), (None, None, "no host")]
)
def test_a_guest_that_is_elsewhere_is_refused_unless_it_has_something_here(
    host: str | None, node: Any, where: str
) -> None:
    away: Instance = instance(host=host, node=node)
    with pytest.raises(InstanceElsewhere, match=f"is on {where}"):
        updated(StoredState(away, claims=(claim(away, ELSEWHERE),)), vm_state="active")
    # One that is nobody's anyone may tell of.
    assert bool(updated(StoredState(away), deleted=True).instances) if host is None else True
    coming: Claim = claim(away, HERE, purpose="move", half="new")
    assert updated(StoredState(away, claims=(coming,)), task_state="migrating").instances != ()


def test_builds_that_fail_in_a_row_are_counted() -> None:
    (one,) = count_build(state().node, "failed", NOW).nodes
    (two,) = count_build(state(on=one).node, "failed", NOW).nodes
    assert (one.failed_builds, two.failed_builds) == (1, 2)
    (none,) = count_build(state(on=two).node, "succeeded", NOW).nodes
    assert none.failed_builds == 0


def test_a_success_after_a_success_writes_nothing() -> None:
    assert count_build(state().node, "succeeded", NOW) == RecordChanges()
