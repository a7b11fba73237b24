"""The capability of ports that another processor programs: resource-tracker.md S102."""

from dataclasses import replace

import pytest

from agent.placement import clock
from tests.support.agent import LEASE
from tests.support.device_host import ROOT, DeviceHost

TRAIT = "COMPUTE_REMOTE_MANAGED_PORTS"
REMOTE = {
    "remote_managed": True,
    "product_id": "154c",
    "address": "0000:81:02.*",
    "physical_network": "tunnelled",
}


def has_trait(host: DeviceHost) -> bool:
    return TRAIT in host.placement.other.traits(ROOT)


@pytest.fixture
def able(host: DeviceHost) -> DeviceHost:
    """A host whose driver can do it, with a card that another processor may program."""
    host.driver.capabilities = {TRAIT: True}
    host.devices["F2"] = replace(host.devices["F2"], serial_number="MT1")
    return host


def test_without_functions_that_are_offered_for_it_nobody_is_told_of_the_capability(
    able: DeviceHost,
) -> None:
    able.start({"address": "0000:82:03.*", "product_id": "154c"})
    assert not has_trait(able)
    able.start(REMOTE)
    assert has_trait(able)
    able.devices["F2"] = replace(able.devices["F2"], serial_number=None)
    able.cycle()
    assert not has_trait(able)


def test_while_the_devices_cannot_be_listed_it_stays_as_it_was(able: DeviceHost) -> None:
    devices = able.devices
    for values, there in (((), False), ((REMOTE,), True)):
        able.devices, able.incomplete = devices, {}
        able.start(*values)
        able.devices, able.incomplete = {}, {"pci": "no answer"}
        able.start(REMOTE)
        assert has_trait(able) is there


def test_a_driver_that_cannot_do_it_has_the_last_word(able: DeviceHost) -> None:
    able.start(REMOTE)
    able.driver.capabilities = {TRAIT: False}
    able.cycle()
    assert not has_trait(able)


@pytest.mark.parametrize("offered_before", [True, False])
def test_the_first_pass_of_a_host_that_took_the_node_over_has_the_functions_and_the_capability(
    able: DeviceHost, offered_before: bool
) -> None:
    assert able.start(REMOTE, host="host-1").state == "changed"
    if offered_before:
        able.claim("S1", "V20")
    else:
        able.without_specs(host="host-1")
    assert has_trait(able) is offered_before
    report = able.start(REMOTE, host="host-2", clock=lambda: clock.now() + LEASE)
    assert report.state == ("in-sync" if offered_before else "changed")
    assert has_trait(able)
    assert {"V20", "V21"} <= able.free | able.holders.keys()
    assert set(able.holders) == ({"V20"} if offered_before else set())
