"""Resize and cold migration from one host to another: resource tracking 8.6."""

from dataclasses import replace

import pytest

from agent.errors import StoreError
from agent.model.node_records import Migration, RecordChanges
from agent.tracker.stored_state import ClaimLimits
from tests.functional.tracker.journey import ANY_DEVICE, Journey
from tests.support.broken_store import UnsoundRecords
from tests.support.tracking import F1, F3, FG, Host, World, device, refused, rows

EMPTY, AS_F1, AS_F3 = "512/1/2048", "2560/2/22528", "8704/5/84992"


@pytest.fixture
def journey(world: World, ha: Host, hb: Host) -> Journey:
    """i1, active on HA as F1; HB is empty."""
    ha.claim("i1", F1)
    ha.update("i1", vm_state="active", task_state="resize_prep")
    return Journey(world, ha, hb)


@pytest.fixture
def claimed(journey: Journey) -> Journey:
    """HB has claimed room to make i1 an F3."""
    journey.dest.move("i1", "resize", F3)
    return journey


@pytest.fixture
def finished(claimed: Journey) -> Journey:
    """i1 is an F3 on HB, to be confirmed or reverted."""
    claimed.finish()
    claimed.dest.update("i1", vm_state="resized", task_state=None)
    return claimed


def test_a_guest_that_has_arrived_is_counted_once(finished: Journey) -> None:
    assert finished.claims == {("HA", "old", "f1"), ("HB", "new", "f3")}
    assert finished.place == ("HB", "HB")
    assert (finished.instance.flavor, finished.instance.old_flavor) == (F3, F1)
    assert finished.migration.status == "finished"
    assert finished.usages == (AS_F1, AS_F3)


def test_confirmed_at_the_source_only_the_destination_counts(finished: Journey) -> None:
    # What the migration's uuid holds in Placement is removed by the audit: row A11 in
    # tests/functional/placement/test_reconciliation.py.
    finished.confirm()
    assert finished.usages == (EMPTY, AS_F3)
    assert finished.claims == {("HB", "only", "f3")}
    assert finished.migration.status == "confirmed"
    assert (
        finished.instance.flavor,
        finished.instance.old_flavor,
        finished.instance.new_flavor,
    ) == (F3, None, None)


def test_reverted_at_the_destination_only_the_source_counts(finished: Journey) -> None:
    finished.revert()
    assert finished.usages == (AS_F1, EMPTY)
    assert finished.claims == {("HA", "only", "f1")}
    assert finished.place == ("HA", "HA")
    assert finished.migration.status == "reverted"
    assert (
        finished.instance.flavor,
        finished.instance.old_flavor,
        finished.instance.new_flavor,
    ) == (F1, None, None)


def test_what_the_instance_says_of_its_old_flavor_does_not_matter(finished: Journey) -> None:
    finished.become(old_flavor=None)
    assert finished.usages == (AS_F1, AS_F3)
    finished.confirm()
    assert finished.usages == (EMPTY, AS_F3)


def test_a_refused_claim_leaves_no_record_of_a_move(journey: Journey) -> None:
    with refused(journey.world, "resources.unavailable"):
        journey.dest.move("i1", "resize", F3, limits=ClaimLimits(memory_mb=8000))
    assert journey.usages == (AS_F1, EMPTY)


def test_a_refused_claim_leaves_the_callers_record_as_it_was(journey: Journey) -> None:
    made = journey.recorded("m1", "resize")
    with refused(journey.world, "resources.unavailable"):
        journey.dest.move("i1", "resize", F3, migration=made, limits=ClaimLimits(memory_mb=8000))
    assert journey.usages == (AS_F1, EMPTY)
    assert journey.status("m1") == "accepted"
    journey.dest.move("i1", "resize", F3, migration=made)
    assert journey.usages == (AS_F1, AS_F3)
    assert journey.status("m1") == "pre-migrating"


def test_of_two_moves_of_one_moment_the_one_that_is_claimed_counts(journey: Journey) -> None:
    m6 = journey.recorded("m6", "resize")
    journey.dest.move("i1", "resize", F3, migration=m6)
    journey.recorded(
        "m5", "resize", "pre-migrating", dest_compute="HB", dest_node=journey.dest.node
    )
    # The owner of a move is its destination; the source does not judge it.
    journey.source.audit()
    assert (journey.status("m5"), journey.status("m6")) == ("pre-migrating", "pre-migrating")
    journey.dest.audit()
    assert (journey.status("m5"), journey.status("m6")) == ("error", "pre-migrating")
    assert journey.usages == (AS_F1, AS_F3)


def test_an_old_move_that_failed_changes_nothing_of_a_guest_that_leaves(journey: Journey) -> None:
    back = Journey(journey.world, journey.dest, journey.source)
    back.recorded("m0", "resize", "error", dest_compute="HA", dest_node=journey.source.node)
    journey.dest.move("i1", "resize", F3)
    assert journey.claims == {("HA", "old", "f1"), ("HB", "new", "f3")}
    assert journey.usages == (AS_F1, AS_F3)
    journey.abort()
    assert journey.claims == {("HA", "only", "f1")}
    assert journey.usages == (AS_F1, EMPTY)


def test_a_stale_move_is_in_error_unless_it_changed_meanwhile(claimed: Journey) -> None:
    journey, dest = claimed, claimed.dest
    m3 = journey.recorded("m3", "resize", "pre-migrating", dest_compute="HB", dest_node=dest.node)
    with journey.world.records.reading() as reading:
        before = reading.load(dest.node)
    journey.write(lambda: _cancelled(journey, m3))
    records = UnsoundRecords(journey.world.store)
    records.outdated = [before]
    dest.records = records
    dest.restart()
    dest.audit(start=True)
    assert records.outdated == []
    assert journey.status("m3") == "cancelled"
    assert journey.usages == (AS_F1, AS_F3)


def _cancelled(journey: Journey, migration: Migration) -> RecordChanges:
    with journey.world.records.reading() as reading:
        return RecordChanges(
            migrations=(replace(reading.migration(migration.uuid), status="cancelled"),)
        )


def test_a_confirmation_that_is_not_written_changes_nothing(world: World) -> None:
    ha, hb = world.plain("HA"), world.plain("HB")
    for host in (ha, hb):
        host.devices = (device(host, "0000:81:00.0"),)
        host.audit()
    ha.claim("i1", FG, devices=ANY_DEVICE)
    hb.move("i1", "migration", devices=ANY_DEVICE)
    journey = Journey(world, ha, hb)
    journey.finish()
    records = UnsoundRecords(world.store)
    ha.records = records
    ha.restart()
    ha.audit(start=True)
    before, records.failures = rows(world), 1
    with pytest.raises(StoreError):
        journey.confirm()
    assert rows(world) == before
    assert journey.migration.status == "finished"
    assert journey.claims == {("HA", "old", "fg"), ("HB", "new", "fg")}
    assert journey.holders(ha) == journey.holders(hb) == {"0000:81:00.0": ("allocated", True)}
    journey.confirm()
    assert journey.holders(ha) == {}
    assert journey.holders(hb) == {"0000:81:00.0": ("allocated", True)}
    assert journey.usages == (EMPTY, "4608/3/22528")


def test_a_half_that_was_dropped_is_not_dropped_by_the_end_of_the_move(finished: Journey) -> None:
    finished.drop(finished.dest, "old")
    assert finished.usages == (EMPTY, AS_F3)
    finished.confirm()
    assert finished.usages == (EMPTY, AS_F3)
    assert finished.claims == {("HB", "only", "f3")}
