"""What the life of a guest does to its claims."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent.model.node_records import RecordChanges
from agent.tracker.stored_state import InstanceUpdate, StoredState
from agent.tracker.verdicts import update_instance
from tests.unit.store.record_samples import claim
from tests.unit.tracker.samples import (
    HERE,
    TASK_STATES,
    VM_STATES,
    guest_here,
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
