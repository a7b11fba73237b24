"""Guests whose share of devices Placement does not know, or knows otherwise."""

from pathlib import Path
from typing import Any

import pytest

from agent.model.devices import DeviceRequest
from agent.model.instance import TaskState
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import Migration
from agent.model.operation import Reshape
from agent.model.report import NodeReport
from agent.tracker.moves import confirm, finish
from agent.tracker.stored_state import InstanceUpdate, MoveClaim
from tests.functional.devices.conftest import Made
from tests.support import faults
from tests.support.agent import operations, total
from tests.support.device_host import FLAVOR, ROOT, DeviceHost
from tests.support.monotonic import Clock
from tests.support.placement import PROJECT, USER
from tests.support.provider_files import ProviderFiles, by_name
from tests.support.tracking import guest, instance, uuid_of
from tests.unit.pci import scene

F2, F3 = "0000:81:02.0", "0000:82:03.0"
VF = "CUSTOM_PCI_8086_154C"
V2 = {"product_id": "154c", "address": "0000:81:02.*"}


def mismatches(report: NodeReport) -> list[str]:
    return [one.detail for one in report.drift if one.kind == "allocation-mismatch"]


def reshapes(report: NodeReport) -> list[Reshape]:
    return [one for one in operations(report) if isinstance(one, Reshape)]


@pytest.fixture
def used(host: DeviceHost) -> DeviceHost:
    """S1 has V20, and a share of the root."""
    host.start(V2)
    host.claim("S1", "V20")
    host.allocate("S1")
    host.placement.clear()
    return host


def test_what_placement_lacks_is_added_by_a_reshape_of_that_card_and_that_consumer(
    used: DeviceHost,
) -> None:
    used.placement.other.claim({ROOT: {"VCPU": 1}}, guest("other"))
    before, card = used.placement.dump(), used.provider("F2")
    report = used.cycle()
    (reshape,) = reshapes(report)
    assert (report.state, used.allocated("S1"), mismatches(report)) == (
        "changed",
        {F2: {VF: 1}},
        [],
    )
    assert (set(reshape.inventories), set(reshape.allocations)) == ({card}, {guest("S1")})
    held = used.placement.other.allocations(guest("S1"))["allocations"]
    assert held[ROOT]["resources"] == {"VCPU": 1, "MEMORY_MB": 1024}
    assert [one.path for one in used.placement.writes()] == ["/reshaper"]
    after = used.placement.dump()
    assert after["consumers"][guest("other")] == before["consumers"][guest("other")]
    assert used.cycle().state == "in-sync"
    used.placement.clear()
    assert used.cycle().state == "in-sync"
    assert (used.placement.writes(), used.placement.count()) == ([], 1)


def test_one_of_two_devices_is_added(host: DeviceHost) -> None:
    host.start(V2)
    host.claim("S1", "V20", "V21")
    host.allocate("S1", V20=1)
    host.cycle()
    assert host.allocated("S1") == {F2: {VF: 2}}


def test_who_has_nothing_in_placement_is_left_alone(used: DeviceHost) -> None:
    used.release("S1")
    used.cycle()
    assert (used.allocated("S1"), used.placement.writes()) == ({}, [])
    used.placement.clear()
    used.cycle()
    assert (used.placement.writes(), used.placement.count()) == ([], 1)


def test_a_resize_on_the_same_host_is_left_alone_until_it_is_over(used: DeviceHost) -> None:
    assert used.agent is not None
    tracker = used.agent.tracking.tracker
    wanted = (DeviceRequest(uuid_of("V21"), 1, {"address": str(scene.address("V21"))}),)
    move = uuid_of("move")
    migration = Migration(
        uuid=ConsumerUuid(move),
        instance=guest("S1"),
        type="resize",
        source_compute="host-1",
        source_node=ProviderUuid(ROOT),
        dest_compute="host-1",
        dest_node=ProviderUuid(ROOT),
        status="pre-migrating",
    )
    tracker.claim_move(
        MoveClaim(
            id=move,
            type="resize",
            node=ProviderUuid(ROOT),
            instance=instance("S1", FLAVOR),
            flavor=FLAVOR,
            migration=migration,
            devices=wanted,
        )
    )
    used.cycle()
    assert (used.allocated("S1"), used.placement.writes()) == ({}, [])
    tracker.abort(move)
    used.cycle()
    assert used.allocated("S1") == {F2: {VF: 1}}


@pytest.fixture
def surplus(host: DeviceHost, clock: Clock) -> DeviceHost:
    """S1 has V20, and two are allocated to it."""
    host.start(V2)
    host.claim("S1", "V20")
    host.allocate("S1", V20=2)
    return host


def still(host: DeviceHost) -> list[str]:
    """One more pass, which leaves S1 what it holds; what is told of it."""
    report = host.cycle()
    assert host.allocated("S1") == {F2: {VF: 2}}
    assert report.state == "in-sync"
    return mismatches(report)


def test_an_amount_that_is_too_big_is_told_and_corrected_when_a_later_pass_sees_the_same(
    surplus: DeviceHost, clock: Clock
) -> None:
    told = [f"instance {guest('S1')} holds 2 {VF} of c1_{F2} instead of 1"]
    assert still(surplus) == told
    # Another pass at once, as claims of others bring about, says no more.
    clock.now += 2
    assert still(surplus) == told
    clock.now += 60
    report = surplus.cycle()
    assert (surplus.allocated("S1"), mismatches(report), report.state) == (
        {F2: {VF: 1}},
        [],
        "changed",
    )
    surplus.placement.clear()
    assert surplus.cycle().state == "in-sync"
    assert (surplus.placement.writes(), surplus.placement.count()) == ([], 1)


def test_what_the_scheduler_has_allocated_for_a_resize_that_is_not_claimed_yet_stays(
    surplus: DeviceHost, clock: Clock
) -> None:
    surplus.tracker.update(guest("S1"), InstanceUpdate(task_state="resize_prep"))
    for _ in range(3):
        assert len(still(surplus)) == 1
        clock.now += 600
    # Not before it is at rest, and then twice again.
    surplus.tracker.update(guest("S1"), InstanceUpdate(task_state=None))
    assert len(still(surplus)) == 1
    clock.now += 60
    surplus.cycle()
    assert surplus.allocated("S1") == {F2: {VF: 1}}


def test_what_was_allocated_for_a_resize_that_is_claimed_in_time_is_never_lowered(
    surplus: DeviceHost, clock: Clock
) -> None:
    assert len(still(surplus)) == 1
    clock.now += 60
    wanted = (DeviceRequest(uuid_of("V21"), 1, {"address": str(scene.address("V21"))}),)
    migration = Migration(
        uuid=ConsumerUuid(uuid_of("move")),
        instance=guest("S1"),
        type="resize",
        source_compute="host-1",
        source_node=ProviderUuid(ROOT),
        dest_compute="host-1",
        dest_node=ProviderUuid(ROOT),
        status="pre-migrating",
    )
    surplus.tracker.claim_move(
        MoveClaim(
            id=uuid_of("move"),
            type="resize",
            node=ProviderUuid(ROOT),
            instance=instance("S1", FLAVOR),
            flavor=FLAVOR,
            migration=migration,
            devices=wanted,
        )
    )
    for _ in range(2):
        assert not any(VF in one for one in still(surplus))
        clock.now += 600


@pytest.mark.long
@pytest.mark.parametrize("task", ["resize_prep", None])
@pytest.mark.parametrize("end", ["confirm", "given up", "lost"])
def test_what_a_migration_of_which_nobody_has_told_holds_is_not_allocated_to_its_guest_again(
    end: str, task: TaskState | None, host: DeviceHost
) -> None:
    host.start({"product_id": "154c"})
    host.allocate("S1", V20=1)
    host.claim("S1", "V20")
    host.cycle()
    # Nobody has to tell of the task, and the claim comes after the allocation.
    host.tracker.update(guest("S1"), InstanceUpdate(task_state=task))
    other, migration = host.placement.other, uuid_of("migration")
    other.move(guest("S1"), migration)
    host.allocate("S1", V30=1)
    for _ in range(1 if end == "lost" else 3):
        report = host.cycle()
        assert (host.allocated("S1"), report.errors) == ({F3: {VF: 1}}, ())
    assert f"instance {guest('S1')} holds 0 {VF} of c1_{F2} instead of 1" in mismatches(report)
    if end == "confirm":
        wanted = (DeviceRequest(uuid_of("V30"), 1, {"address": str(scene.address("V30"))}),)
        move = MoveClaim(
            id=uuid_of("move"),
            type="resize",
            node=ProviderUuid(ROOT),
            instance=instance("S1", FLAVOR),
            flavor=FLAVOR,
            devices=wanted,
            migration=Migration(
                uuid=ConsumerUuid(migration),
                instance=guest("S1"),
                type="resize",
                source_compute="host-1",
                source_node=ProviderUuid(ROOT),
                dest_compute="host-1",
                dest_node=ProviderUuid(ROOT),
                status="pre-migrating",
            ),
        )
        host.tracker.claim_move(move)
        host.cycle()
        for step in (finish, confirm):
            host.tracker.change(move.id, step)
            host.cycle()
        assert (host.allocated("S1"), other.allocations(migration)["allocations"]) == (
            {F3: {VF: 1}},
            {},
        )
    elif end == "given up":
        other.release(guest("S1"))
        other.move(migration, guest("S1"))
        host.cycle()
        assert host.allocated("S1") == {F2: {VF: 1}}
    else:
        # Which moves no generation.
        other.release(migration)
        host.cycle()
        assert host.allocated("S1")[F2] == {VF: 1}


def test_what_is_too_big_by_another_amount_each_time_is_told_and_left_alone(
    surplus: DeviceHost, clock: Clock
) -> None:
    assert len(still(surplus)) == 1
    clock.now += 60
    surplus.allocate("S1", V20=1)
    assert mismatches(surplus.cycle()) == []
    surplus.allocate("S1", V20=2)
    clock.now += 60
    assert len(still(surplus)) == 1


def test_what_is_too_big_in_a_new_process_is_only_told(surplus: DeviceHost, clock: Clock) -> None:
    assert len(still(surplus)) == 1
    for _ in range(2):
        clock.now += 600
        assert (len(mismatches(surplus.start())), surplus.allocated("S1")) == (1, {F2: {VF: 2}})


def test_what_a_guest_without_such_a_device_holds_is_told_and_left_alone(
    host: DeviceHost,
) -> None:
    host.start(V2)
    host.claim("S1")
    host.allocate("S1", V20=1)
    report = host.cycle()
    assert (host.allocated("S1"), mismatches(report)) == (
        {F2: {VF: 1}},
        [f"instance {guest('S1')} holds 1 {VF} of c1_{F2} instead of 0"],
    )
    assert report.state == "in-sync"


def test_what_does_not_fit_is_told_and_the_rest_goes_on(host: DeviceHost) -> None:
    host.start({"product_id": "154c"})
    host.claim("S1", "V20")
    host.claim("S2", "V30")
    host.allocate("S1")
    host.allocate("S2")
    host.allocate("stranger", V20=2)
    report = host.cycle()
    assert (host.allocated("S1"), host.allocated("S2")) == ({}, {F3: {VF: 1}})
    assert mismatches(report) == [f"instance {guest('S1')} holds 0 {VF} of c1_{F2} instead of 1"]


def test_a_consumer_that_changes_meanwhile_is_read_again(
    used: DeviceHost, short_waits: None
) -> None:
    other = used.placement.other

    def change(_request: Any) -> None:
        other.claim({ROOT: {"VCPU": 1, "MEMORY_MB": 512}}, guest("S1"))

    used.placement.faults.add(faults.before(change), method="POST", path="/reshaper")
    report = used.cycle()
    held = other.allocations(guest("S1"))["allocations"]
    assert (report.attempts, held[ROOT]["resources"]["MEMORY_MB"], used.allocated("S1")) == (
        2,
        512,
        {F2: {VF: 1}},
    )


def test_an_account_that_may_not_reshape_publishes_the_rest(made: Made) -> None:
    host = made()
    host.start(V2, roles="admin")
    host.claim("S1", "V20")
    host.allocate("S1")
    host.start(V2, {"address": "0000:81:00.0"}, roles="admin")
    report = host.cycle()
    assert (report.state, host.allocated("S1"), host.tree) == (
        "in-sync",
        {},
        ["0000:81:00.0: CUSTOM_PCI_8086_1533=1", f"{F2}: {VF}=2"],
    )
    assert mismatches(report) == [f"instance {guest('S1')} holds 0 {VF} of c1_{F2} instead of 1"]


LICENSE = "CUSTOM_LICENSE"


def gives(host: DeviceHost, **classes: int) -> None:
    """What the host's driver makes of its root, beside what the agent does."""
    records = {name: total(amount) for name, amount in classes.items()}
    host.driver.script = lambda tree: tree.update_inventory(
        ROOT, {**tree.provider(ROOT).inventory, **records}
    )


def on_root(host: DeviceHost) -> tuple[int, int]:
    record = host.placement.other.inventory(ROOT)[LICENSE]
    return record["total"], record["reserved"]


@pytest.mark.long
@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize("owner", ["S1", "stranger"])
def test_a_wrong_share_beside_a_class_that_vanishes_while_in_use_does_not_block_the_node(
    host: DeviceHost, short_waits: None, start: bool, owner: str
) -> None:
    gives(host, CUSTOM_LICENSE=4)
    host.start(V2)
    host.claim("S1", "V20")
    consumer, held = guest(owner), {"VCPU": 1, LICENSE: 1}
    host.placement.other.claim({ROOT: held}, consumer)
    if owner != "S1":
        host.allocate("S1")
    gives(host)
    report = host.start() if start else host.cycle()
    assert (report.errors, host.allocated("S1"), on_root(host)) == ((), {F2: {VF: 1}}, (4, 4))
    report = host.cycle()
    assert ("held-device" in {one.kind for one in report.drift}, report.errors) == (True, ())
    host.placement.other.release(consumer)
    host.cycle()
    assert LICENSE not in host.placement.other.inventory(ROOT)


def test_a_wrong_share_beside_a_card_that_vanishes_while_in_use_does_not_block_the_node(
    host: DeviceHost, short_waits: None
) -> None:
    host.start({"product_id": "154c"}, {"address": "0000:81:00.0"})
    host.claim("S1", "V20")
    host.allocate("S1")
    host.allocate("stranger", P0=1)
    del host.devices["P0"]
    report = host.cycle()
    assert (report.errors, host.allocated("S1")) == ((), {F2: {VF: 1}})
    assert host.allocated("stranger") == {"0000:81:00.0": {"CUSTOM_PCI_8086_1533": 1}}
    assert host.cycle().errors == ()


def test_a_wrong_share_of_a_card_with_a_class_of_a_file_that_is_taken_back_while_in_use_does_not_block_the_node(
    host: DeviceHost, short_waits: None, tmp_path: Path
) -> None:
    files = ProviderFiles(tmp_path / "files")
    host.provider_files = files.folder
    files.write("card.yaml", by_name(f"c1_{F2}", **{LICENSE: {"total": 4}}))
    host.start(V2)
    host.claim("S1", "V20")
    host.allocate("S1")
    card = host.provider("V20")
    consumer = host.placement.other.claim({card: {LICENSE: 1}})
    files.remove("card.yaml")
    report = host.start()
    assert (report.errors, host.allocated("S1")) == ((), {F2: {VF: 1}})
    assert host.placement.other.inventory(card)[LICENSE]["reserved"] == 4
    host.placement.other.release(consumer)
    host.cycle()
    assert set(host.placement.other.inventory(card)) == {VF}


def test_a_share_that_cannot_be_corrected_does_not_stop_what_else_there_is_to_write(
    used: DeviceHost, short_waits: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "agent")
    other = used.placement.other

    def change(_request: Any) -> None:
        # Whoever is asked for has changed by the time it is written, each time.
        generation = other.allocations(guest("S1"))["consumer_generation"]
        held = {
            uuid: {"resources": one["resources"]}
            for uuid, one in other.allocations(guest("S1"))["allocations"].items()
        }
        other.call(
            "PUT",
            f"/allocations/{guest('S1')}",
            {
                "allocations": held,
                "project_id": PROJECT,
                "user_id": USER,
                "consumer_generation": generation,
            },
        )

    used.placement.faults.add(faults.before(change), method="POST", path="/reshaper", times=None)
    gives(used, CUSTOM_LICENSE=4)
    report = used.cycle()
    assert on_root(used) == (4, 0)
    assert (used.allocated("S1"), mismatches(report)) == (
        {},
        [f"instance {guest('S1')} holds 0 {VF} of c1_{F2} instead of 1"],
    )
    assert report.state == "changed"
    assert "corrected for" not in caplog.text
    used.placement.faults.clear()
    used.cycle()
    assert used.allocated("S1") == {F2: {VF: 1}}
    assert (
        caplog.text.count(f"allocations of devices were corrected for instances {guest('S1')}") == 1
    )
