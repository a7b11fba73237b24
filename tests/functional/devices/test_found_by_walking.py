"""What the random walk over devices found once, each as the smallest example of it."""

from typing import Any

import pytest

from agent.model.devices import DeviceRequest
from agent.model.names import ProviderUuid
from agent.tracker.moves import finish, revert
from agent.tracker.stored_state import InstanceUpdate, MoveClaim
from tests.support.device_host import FLAVOR, ROOT, DeviceHost, errors
from tests.support.tracking import guest, instance, uuid_of
from tests.unit.pci import scene

F2 = "0000:81:02.0"
VF = "CUSTOM_PCI_8086_154C"
V2 = {"product_id": "154c", "address": "0000:81:02.*"}
THEIRS: dict[str, Any] = {"CUSTOM_THEIR_CLASS": {"total": 2, "max_unit": 2}}


def test_a_class_in_use_that_somebody_else_put_on_a_card_is_no_reason_to_refuse_a_start(
    host: DeviceHost,
) -> None:
    host.start(V2)
    card, other = host.provider("F2"), host.placement.other
    other.set_inventory(card, {**other.inventory(card), **THEIRS})
    other.claim({card: {"CUSTOM_THEIR_CLASS": 1}}, guest("stranger"))
    theirs = other.inventory(card)["CUSTOM_THEIR_CLASS"]
    report = host.start(V2)
    assert (report.state, errors(report)) == ("in-sync", "")
    del host.devices["V21"]
    assert (
        host.cycle().state,
        other.inventory(card)[VF]["total"],
        other.inventory(card)["CUSTOM_THEIR_CLASS"],
    ) == ("changed", 1, theirs)


def test_a_class_in_use_that_somebody_else_put_on_a_card_stays_as_it_is_when_the_card_is_not_offered_any_more(
    host: DeviceHost,
) -> None:
    host.start(V2)
    card, other = host.provider("F2"), host.placement.other
    other.set_inventory(card, {**other.inventory(card), **THEIRS})
    other.claim({card: {"CUSTOM_THEIR_CLASS": 1}}, guest("stranger"))
    theirs = other.inventory(card)["CUSTOM_THEIR_CLASS"]
    host.without_specs()
    host.cycle()
    assert other.inventory(card) == {"CUSTOM_THEIR_CLASS": theirs}
    assert host.cycle().state == "in-sync"
    other.release(guest("stranger"))
    host.cycle()
    assert host.tree == []


def test_a_device_for_one_time_is_not_over_committed_while_it_is_used(
    host: DeviceHost, caplog: pytest.LogCaptureFixture
) -> None:
    host.start({"address": "0000:81:00.0", "one_time_use": True})
    host.claim("S1", "P0")
    host.allocate("S1", P0=1)
    report = host.cycle()
    assert (host.tree, report.drift) == (
        ["0000:81:00.0: CUSTOM_PCI_8086_1533=1 reserved 1 {HW_PCI_ONE_TIME_USE}"],
        (),
    )
    assert "over-committed" not in caplog.text


def test_what_a_reverted_resize_still_holds_of_one_card_stays_while_its_guest_holds_as_much_of_another(
    host: DeviceHost,
) -> None:
    host.start({"product_id": "154c"})
    host.claim("S1", "V20")
    host.allocate("S1", V20=1)
    # So that the first card has no room for the guest's share beside that of its migration.
    host.claim("S2", "V21")
    host.allocate("S2", V21=1)
    host.cycle()
    assert host.agent is not None
    other, tracker, move = host.placement.other, host.agent.tracking.tracker, uuid_of("move")
    other.move(guest("S1"), move)
    host.allocate("S1", V30=1)
    wanted = (DeviceRequest(uuid_of("V30"), 1, {"address": str(scene.address("V30"))}),)
    tracker.claim_move(
        MoveClaim(
            id=move,
            type="resize",
            node=ProviderUuid(ROOT),
            instance=instance("S1", FLAVOR),
            flavor=FLAVOR,
            devices=wanted,
        )
    )
    tracker.change(move, finish)
    tracker.update(guest("S1"), InstanceUpdate(task_state="resize_reverting"))
    tracker.change(move, revert)
    before = other.allocations(move)["allocations"].keys()
    host.cycle()
    host.cycle()
    assert other.allocations(move)["allocations"].keys() == before
    other.move(move, guest("S1"))
    assert (host.cycle().state, host.allocated("S1")) == ("in-sync", {F2: {VF: 1}})


@pytest.mark.parametrize("used", [False, True])
def test_a_card_whose_marks_somebody_took_off_stays_while_the_devices_cannot_be_listed(
    host: DeviceHost, used: bool
) -> None:
    host.start(V2)
    card, other = host.provider("F2"), host.placement.other
    if used:
        other.claim({card: {VF: 1}}, guest("stranger"))
    before, traits = other.inventory(card), other.traits(card)
    other.set_traits(card, [])
    host.incomplete = {"pci": "no answer"}
    for _ in range(2):
        host.cycle()
        assert (other.inventory(card), other.traits(card)) == (before, traits)
    host.incomplete = {}
    assert host.cycle().state == "in-sync"
