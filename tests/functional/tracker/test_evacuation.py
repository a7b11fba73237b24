"""Evacuation from a host that is down to another: resource tracking 8.7.

What becomes of the allocations is in tests/functional/placement/test_reconciliation.py, under the
same numbers.
"""

import pytest

from tests.functional.tracker.journey import Journey
from tests.support.tracking import F2, F3, Host, World, domain, refused, rows, stats_of

EMPTY, AS_F2 = "512/1/2048", "4608/3/53760"


@pytest.fixture
def journey(world: World, ha: Host, hb: Host) -> Journey:
    """i1, active on HA as F2, which is down; HB is empty."""
    ha.claim("i1", F2)
    ha.update("i1", vm_state="active")
    return Journey(world, ha, hb)


@pytest.fixture
def claimed(journey: Journey) -> Journey:
    """HB has claimed room for i1."""
    journey.dest.move("i1", "evacuation")
    journey.dest.update("i1", task_state="rebuilding")
    return journey


def test_the_destination_counts_the_guest_that_is_rebuilt_there(claimed: Journey) -> None:
    assert claimed.dest.usage == AS_F2
    assert claimed.claims == {("HA", "old", "f2"), ("HB", "new", "f2")}
    assert (claimed.migration.type, claimed.migration.status) == ("evacuation", "pre-migrating")
    assert (claimed.migration.source_compute, claimed.migration.dest_compute) == ("HA", "HB")
    assert claimed.place == ("HA", "HA")


@pytest.mark.parametrize("task", ["rebuilding", "rebuild_spawning", None])
def test_a_guest_in_error_that_is_evacuated_counts(claimed: Journey, task: str | None) -> None:
    claimed.dest.update("i1", vm_state="error", task_state=task)
    claimed.dest.audit()
    assert claimed.dest.usage == AS_F2
    assert claimed.usages == (AS_F2, AS_F2)


def test_an_evacuation_that_is_finished_is_done_at_once(claimed: Journey) -> None:
    claimed.finish()
    assert claimed.place == ("HB", "HB")
    assert claimed.migration.status == "done"
    assert [(claim.half, claim.state) for claim in claimed.dest.claims("i1")] == [
        ("only", "consumed")
    ]
    claimed.dest.update("i1", vm_state="active", task_state=None)
    assert stats_of(claimed.dest.audit())["num_vm_active"] == 1
    assert claimed.usages == (EMPTY, AS_F2)
    claimed.dest.update("i1", vm_state="deleted", deleted=True)
    assert claimed.dest.usage == EMPTY


@pytest.mark.parametrize("first", ["source", "dest"])
def test_killed_between_ownership_and_the_end_the_next_start_completes_it(
    claimed: Journey, first: str
) -> None:
    # Our own end is one transaction; somebody else's records may still tell of the guest before
    # they tell of the move.
    claimed.become(host="HB", node=claimed.dest.node, task_state=None)
    for host in (
        (claimed.source, claimed.dest) if first == "source" else (claimed.dest, claimed.source)
    ):
        host.restart()
        host.audit(start=True)
    assert claimed.dest.usage == AS_F2
    assert claimed.migration.status == "done"
    claimed.source.audit()
    assert claimed.usages == (EMPTY, AS_F2)
    assert claimed.claims == {("HB", "only", "f2")}


def test_the_source_returns_while_the_guest_is_under_way_and_counts_it_once(
    claimed: Journey,
) -> None:
    claimed.source.restart()
    told = claimed.source.audit(start=True, domains=(domain("i1", 4096, 2),))
    # The domain that still runs there is left alone, and known.
    assert told.drift == ()
    assert told.usage.claims == 1
    assert claimed.source.usage == AS_F2
    assert claimed.claims == {("HA", "old", "f2"), ("HB", "new", "f2")}


def test_the_source_returns_after_the_end_and_counts_nothing(claimed: Journey) -> None:
    claimed.finish()
    claimed.source.restart()
    told = claimed.source.audit(start=True, domains=(domain("i1", 4096, 2),))
    assert claimed.source.usage == EMPTY
    # Two copies of one guest write to the same disks; which one goes is a decision of people or of
    # their tools.
    (drift,) = told.drift
    assert (drift.kind, drift.consumer) == ("unknown-domain", claimed.instance.uuid)
    assert "its instance is on host HB" in drift.detail
    assert "remove it from this hypervisor" in drift.remedy
    assert claimed.source.audit(domains=()).drift == ()
    assert claimed.usages == (EMPTY, AS_F2)


def test_a_rebuild_that_fails_gives_the_destination_back(claimed: Journey) -> None:
    claimed.dest.update("i1", vm_state="error", task_state=None)
    claimed.abort()
    assert claimed.migration.status == "failed"
    assert claimed.usages == (AS_F2, EMPTY)
    assert claimed.claims == {("HA", "only", "f2")}
    before = rows(claimed.world)
    claimed.abort()
    assert rows(claimed.world) == before


def test_a_rebuild_in_place_claims_nothing(journey: Journey) -> None:
    journey.source.update("i1", task_state="rebuilding")
    assert journey.usages == (AS_F2, EMPTY)
    with refused(journey.world, "request.invalid"):
        journey.source.move("i1", "evacuation")
    with refused(journey.world, "request.invalid"):
        journey.dest.move("i1", "evacuation", F3)
