"""What the random walk over devices found once, each as the smallest example of it."""

from typing import Any

import pytest

from tests.support.device_host import DeviceHost, errors
from tests.support.tracking import guest

F2 = "0000:81:02.0"
VF = "CUSTOM_PCI_8086_154C"
V2 = {"product_id": "154c", "address": "0000:81:02.*"}
THEIRS: dict[str, Any] = {"CUSTOM_THEIR_CLASS": {"total": 2, "max_unit": 2}}


def test_a_class_in_use_that_somebody_else_put_on_a_card_is_no_reason_to_refuse_a_start(host: DeviceHost) -> None:
    host.start(V2)
    card, other = host.provider("F2"), host.placement.other
    other.set_inventory(card, {**other.inventory(card), **THEIRS})
    other.claim({card: {"CUSTOM_THEIR_CLASS": 1}}, guest("stranger"))
    theirs = other.inventory(card)["CUSTOM_THEIR_CLASS"]
    report = host.start(V2)
    assert (report.state, errors(report)) == ("in-sync", "")
    del host.devices["V21"]
    assert (host.cycle().state, other.inventory(card)[VF]["total"], other.inventory(card)["CUSTOM_THEIR_CLASS"]) == ("changed", 1, theirs)


def test_a_class_in_use_that_somebody_else_put_on_a_card_stays_as_it_is_when_the_card_is_not_offered_any_more(host: DeviceHost) -> None:
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


def test_a_device_for_one_time_is_not_over_committed_while_it_is_used(host: DeviceHost, caplog: pytest.LogCaptureFixture) -> None:
    host.start({"address": "0000:81:00.0", "one_time_use": True})
    host.claim("S1", "P0")
    host.allocate("S1", P0=1)
    report = host.cycle()
    assert (host.tree, report.drift) == (["0000:81:00.0: CUSTOM_PCI_8086_1533=1 reserved 1 {HW_PCI_ONE_TIME_USE}"], ())
    assert "over-committed" not in caplog.text
