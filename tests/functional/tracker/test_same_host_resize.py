"""Resize on the host where the guest is: resource tracking 8.5."""

from functools import partial

import pytest

from agent.model.devices import DeviceRequest
from agent.model.instance import Instance
from agent.tracker.moves import confirm, finish, progress, revert
from tests.support.tracking import F1, F3, FG, FN, FN4, Host, World, device, refused

GPU = (DeviceRequest("gpu", 1, {"kind": "gpu"}),)


def record(host: Host) -> Instance:
    """The record of i1."""
    found = host.instance("i1")
    assert found is not None
    return found


def halves(host: Host) -> dict[str, str | None]:
    """The open claims of i1 as half to flavor."""
    return {claim.half: claim.flavor_id for claim in host.claims("i1")}


@pytest.fixture
def claimed(ha: Host) -> Host:
    """HA with i1, which is active as F1 and about to become F3."""
    ha.claim("i1", F1)
    ha.update("i1", vm_state="active", task_state="resize_prep")
    assert ha.usage == "2560/2/22528"
    ha.move("i1", "resize", F3)
    return ha


@pytest.fixture
def finished(claimed: Host) -> Host:
    """The same, with i1 as F3, to be confirmed or reverted."""
    claimed.tracker.change(claimed.move_id("i1"), finish)
    claimed.update("i1", vm_state="resized", task_state=None)
    return claimed


def test_an_audit_before_the_guest_has_changed_counts_the_same(claimed: Host) -> None:
    view = claimed.audit()
    assert claimed.usage == "10752/6/105472"
    assert (view.state.problems, view.drift) == ((), ())
    assert (view.usage.instances, view.usage.claims, view.usage.migrations) == (1, 2, 1)


def test_old_and_new_pins_do_not_overlap(hn: Host) -> None:
    hn.claim("i1", FN)
    hn.update("i1", vm_state="active", task_state="resize_prep")
    hn.move("i1", "resize", FN4)
    hn.audit()
    old, new = sorted(hn.claims("i1"), key=lambda claim: claim.half, reverse=True)
    assert (old.half, [sorted(cell.pinned_cpus) for cell in old.cells]) == ("old", [[4, 5]])
    assert (new.half, [sorted(cell.pinned_cpus) for cell in new.cells]) == (
        "new",
        [[12, 13, 14, 15]],
    )
    assert (hn.pinned(0), hn.pinned(1)) == ({4, 5}, {12, 13, 14, 15})
    assert hn.usage == "12800/6/20480"


def test_a_cold_migration_to_the_same_node_has_two_halves_until_its_end(hn: Host) -> None:
    def pins() -> dict[str, set[int]]:
        return {
            claim.half: {cpu for cell in claim.cells for cpu in cell.pinned_cpus}
            for claim in hn.claims("i1")
        }

    hn.claim("i1", FN)
    hn.update("i1", vm_state="active", task_state="resize_prep")
    hn.move("i1", "migration")
    hn.audit()
    under_way = pins()
    assert under_way.keys() == {"old", "new"}
    assert not under_way["old"] & under_way["new"]
    hn.tracker.change(hn.move_id("i1"), finish)
    hn.update("i1", vm_state="resized", task_state=None)
    hn.audit()
    assert pins() == under_way
    hn.tracker.change(hn.move_id("i1"), confirm)
    hn.audit()
    assert pins() == {"only": under_way["new"]}
    assert hn.pinned(0) | hn.pinned(1) == under_way["new"]


def test_a_reverted_guest_has_its_old_cpus(hn: Host) -> None:
    hn.claim("i1", FN)
    hn.update("i1", vm_state="active", task_state="resize_prep")
    hn.move("i1", "resize", FN4)
    hn.tracker.change(hn.move_id("i1"), finish)
    hn.update("i1", vm_state="resized", task_state="resize_reverting")
    hn.tracker.change(hn.move_id("i1"), revert)
    assert (hn.pinned(0), hn.pinned(1)) == ({4, 5}, set())
    assert hn.usage == "4608/2/10240"


@pytest.mark.parametrize("task_state", [None, "resize_confirming"])
def test_a_revert_that_nobody_announced_is_refused(
    world: World, finished: Host, task_state: str | None
) -> None:
    finished.update("i1", task_state=task_state)
    with refused(world, "state.wrong"):
        finished.tracker.change(finished.move_id("i1"), revert)
    assert finished.usage == "10752/6/105472"
    assert finished.migration("i1").status == "finished"


def test_a_resize_that_nobody_goes_on_with_is_told_and_keeps_its_room_until_it_is_aborted(
    world: World, claimed: Host
) -> None:
    claimed.restart()
    assert claimed.audit(start=True).drift == ()
    assert claimed.usage == "10752/6/105472"
    # As long as somebody tells of progress, a resize may take as long as it likes.
    for status in (
        "pre-migrating",
        "pre-migrating",
        "migrating",
        "post-migrating",
        "post-migrating",
    ):
        world.time.pass_by(claimed.rules.stranded_after - 1)
        claimed.tracker.change(claimed.move_id("i1"), partial(progress, status=status))
        assert claimed.audit().drift == ()
    world.time.pass_by(claimed.rules.stranded_after)
    for _ in range(3):
        (drift,) = claimed.audit().drift
        assert (drift.kind, drift.severity) == ("stranded-claim", "warning")
        assert "its instance is resize_prep, but no progress is reported" in drift.detail
        assert f"agent migrate abort {claimed.move_id('i1')}" in drift.remedy
        world.time.pass_by(10 * claimed.rules.stranded_after)
    assert claimed.usage == "10752/6/105472"
    claimed.tracker.abort(claimed.move_id("i1"))
    assert claimed.audit().drift == ()
    assert claimed.usage == "2560/2/22528"
    assert halves(claimed) == {"only": "f1"}
    assert (record(claimed).flavor, record(claimed).old_flavor, record(claimed).new_flavor) == (
        F1,
        None,
        None,
    )


def test_a_resize_that_goes_on_after_it_was_told_is_not_told_any_more(
    world: World, claimed: Host
) -> None:
    claimed.update("i1", task_state=None)
    world.time.pass_by(claimed.rules.stranded_after)
    assert [drift.kind for drift in claimed.audit().drift] == ["stranded-claim"]
    claimed.update("i1", task_state="resize_finish")
    assert claimed.audit().drift == ()
    assert claimed.usage == "10752/6/105472"


def test_a_guest_that_is_deleted_in_the_middle_gives_both_halves_back(claimed: Host) -> None:
    claimed.update("i1", vm_state="deleted", deleted=True)
    assert claimed.usage == "512/1/2048"
    assert claimed.migration("i1").status == "cancelled"
    claimed.audit()
    assert claimed.usage == "512/1/2048"


@pytest.fixture
def hp(world: World) -> Host:
    """A host with two GPUs, and i1 that has G0 and resizes to a flavor with one."""
    host = world.plain("HP")
    host.devices = tuple(
        device(host, f"0000:8{number}:00.0", tags={"kind": "gpu"}) for number in range(2)
    )
    host.audit()
    host.claim("i1", FG, devices=GPU)
    host.update("i1", vm_state="active", task_state="resize_prep")
    host.move("i1", "resize", F3, devices=GPU)
    return host


def gpus(host: Host) -> list[str | None]:
    """The halves that have the GPUs, None for one that is free."""
    half = {claim.id: claim.half for claim in host.claims("i1")}
    return [
        half.get(device.holder or "")
        for _, device in sorted(host.tracker.view(host.node).devices.items())
    ]


def test_a_confirmed_resize_frees_the_old_device_only(hp: Host) -> None:
    hp.tracker.change(hp.move_id("i1"), finish)
    hp.tracker.change(hp.move_id("i1"), confirm)
    assert gpus(hp) == [None, "only"]
    hp.audit()
    assert gpus(hp) == [None, "only"]
    assert hp.usage == "8704/5/84992"


def test_a_reverted_resize_frees_the_new_device_only(hp: Host) -> None:
    hp.tracker.change(hp.move_id("i1"), finish)
    hp.update("i1", vm_state="resized", task_state="resize_reverting")
    hp.tracker.change(hp.move_id("i1"), revert)
    assert gpus(hp) == ["only", None]
    assert hp.usage == "4608/3/22528"
