"""Live migration from one host to another: resource tracking 8.8."""

import pytest

from agent.model.node_records import MigrationStatus
from agent.tracker.claims import allocate_devices
from agent.tracker.moves import finish
from tests.functional.tracker.journey import ANY_DEVICE, Journey
from tests.support.tracking import F1, F3, FG, Host, World, device, domain, guest, refused

EMPTY, AS_F1 = "512/1/2048", "2560/2/22528"
HOUR = 3600.0
ON_SOURCE, ON_DEST = "0000:81:00.0", "0000:91:00.0"


@pytest.fixture
def journey(world: World, ha: Host, hb: Host) -> Journey:
    """HB has claimed room for i1, which is active on HA and has a port there; its port on HB is
    claimed. The caller made the record.
    """
    ha.devices, hb.devices = (device(ha, ON_SOURCE),), (device(hb, ON_DEST),)
    for host in (ha, hb):
        host.audit()
    ha.claim("i1", F1)
    ha.update("i1", vm_state="active")
    found = Journey(world, ha, hb)
    ha.tracker.change(found.port(ha), allocate_devices)
    ha.update("i1", task_state="migrating")
    found.recorded("move-i1", "live-migration")
    hb.move("i1", "live-migration", migration=found.migration)
    found.port(hb)
    return found


def test_what_was_accepted_stays_so_while_both_sides_count(journey: Journey) -> None:
    assert journey.migration.status == "accepted"
    assert (journey.migration.dest_compute, journey.migration.dest_node) == (
        "HB",
        journey.dest.node,
    )
    assert journey.place == ("HA", "HA")
    assert journey.claims == {("HA", "old", "f1"), ("HB", "new", "f1")}
    assert journey.usages == (AS_F1, AS_F1)
    assert journey.holders(journey.source) == {ON_SOURCE: ("allocated", True)}
    assert journey.holders(journey.dest) == {ON_DEST: ("claimed", True)}


@pytest.mark.parametrize("status", ["accepted", "preparing", "running", "post-migrating"])
def test_given_up_on_the_way_the_destination_is_as_if_nothing_had_been(
    journey: Journey, status: MigrationStatus
) -> None:
    journey.migration_becomes(status)
    journey.abort()
    assert journey.migration.status == "cancelled"
    assert journey.claims == {("HA", "only", "f1")}
    assert journey.holders(journey.source) == {ON_SOURCE: ("allocated", True)}
    assert journey.holders(journey.dest) == {}
    assert journey.place == ("HA", "HA")
    journey.source.update("i1", task_state=None)
    assert journey.usages == (AS_F1, EMPTY)


def test_the_destination_drops_its_half_and_the_move_is_ended_afterwards(
    journey: Journey,
) -> None:
    journey.migration_becomes("running")
    journey.drop(journey.dest, "new")
    assert (journey.source.usage, journey.dest.usage) == (AS_F1, EMPTY)
    assert journey.holders(journey.dest) == {}
    assert journey.holders(journey.source) == {ON_SOURCE: ("allocated", True)}
    journey.abort()
    assert journey.migration.status == "cancelled"
    assert journey.claims == {("HA", "only", "f1")}
    assert journey.usages == (AS_F1, EMPTY)


def test_arrived_the_destination_has_all_of_it(journey: Journey) -> None:
    journey.finish()
    assert journey.migration.status == "completed"
    assert journey.claims == {("HB", "only", "f1")}
    assert journey.place == ("HB", "HB")
    assert journey.holders(journey.source) == {}
    assert journey.holders(journey.dest) == {ON_DEST: ("allocated", True)}
    assert journey.usages == (EMPTY, AS_F1)


def test_devices_of_the_move_itself_are_attached_when_the_guest_arrives(
    world: World, ha: Host, hb: Host
) -> None:
    ha.devices, hb.devices = (device(ha, ON_SOURCE),), (device(hb, ON_DEST),)
    for host in (ha, hb):
        host.audit()
    ha.claim("i1", FG, devices=ANY_DEVICE)
    hb.move("i1", "live-migration", devices=ANY_DEVICE)
    journey = Journey(world, ha, hb)
    assert journey.holders(hb) == {ON_DEST: ("claimed", True)}
    journey.finish()
    assert journey.holders(hb) == {ON_DEST: ("allocated", True)}
    assert journey.holders(ha) == {}


def test_a_live_migration_keeps_the_flavor_and_leaves_the_host(journey: Journey) -> None:
    journey.abort()
    with refused(journey.world, "request.invalid"):
        journey.dest.move("i1", "live-migration", F3, id="again")
    with refused(journey.world, "request.invalid"):
        journey.source.move("i1", "live-migration", id="again")


def test_a_move_whose_devices_are_attached_goes_on(world: World, ha: Host, hb: Host) -> None:
    hb.devices = (device(hb, ON_DEST),)
    hb.audit()
    ha.claim("i1", F1)
    hb.move("i1", "live-migration", devices=ANY_DEVICE)
    world.time.pass_by(HOUR)
    hb.tracker.change(hb.move_id("i1"), allocate_devices)
    assert hb.audit().drift == ()
    world.time.pass_by(HOUR)
    assert [drift.kind for drift in hb.audit().drift] == ["stranded-claim"]
    assert hb.usage == AS_F1


def test_a_long_live_migration_whose_states_nobody_tells_keeps_its_room_under_the_running_guest(
    world: World, ha: Host, hb: Host
) -> None:
    ha.claim("i1", F1)
    ha.update("i1", vm_state="active")
    hb.move("i1", "live-migration")
    for host in (ha, hb, ha, hb):
        world.time.pass_by(hb.rules.stranded_after)
        # It runs at the source, and is being received at the destination.
        (drift,) = host.audit(domains=(domain("i1", 2048, 1),)).drift
        assert (drift.kind, drift.consumer) == ("stranded-claim", guest("i1"))
        assert f"agent migrate abort {hb.move_id('i1')}" in drift.remedy
    assert (ha.usage, hb.usage) == ("2560/2/22528", "2560/2/22528")
    hb.tracker.change(hb.move_id("i1"), finish)
    assert hb.audit().drift == ()
    assert (ha.usage, hb.usage) == ("512/1/2048", "2560/2/22528")
