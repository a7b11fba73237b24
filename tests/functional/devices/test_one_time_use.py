"""Devices for one guest only: whoever had one, nobody gets it after him before somebody has cleaned
it. And what operators reserve of a card.
"""

from pathlib import Path
from typing import Any

import pytest

from agent.model.names import ProviderUuid
from agent.tracker.errors import ResourcesUnavailable
from tests.functional.devices.conftest import Made
from tests.support import faults
from tests.support.device_host import ROOT, DeviceHost
from tests.support.store_place import Place

pytestmark = pytest.mark.long

P0, F3 = "0000:81:00.0", "0000:82:03.0"
ONCE = {"address": P0, "one_time_use": True}
V3 = {"product_id": "154c", "address": "0000:82:03.*"}
PLAIN, VF = "CUSTOM_PCI_8086_1533", "CUSTOM_PCI_8086_154C"
CLEAN = [f"{P0}: {PLAIN}=1 {{HW_PCI_ONE_TIME_USE}}"]
USED = [f"{P0}: {PLAIN}=1 reserved 1 {{HW_PCI_ONE_TIME_USE}}"]
RESERVED = [f"{F3}: {VF}=4 reserved 1"]


@pytest.fixture
def stored(place: Place, made: Made) -> DeviceHost:
    """A host with its store in a file, and one with it in PostgreSQL."""
    return made(connection=place.url)


@pytest.fixture
def used(host: DeviceHost) -> DeviceHost:
    """A host whose P0 a guest had, which Placement knows."""
    return use(host)


def use(host: DeviceHost) -> DeviceHost:
    """Have a guest that had P0 come and go, and Placement know."""
    host.start(ONCE)
    host.claim("S1", "P0")
    host.cycle()
    host.delete("S1")
    host.cycle()
    assert host.tree == USED
    return host


def come_and_gone(host: DeviceHost, name: str = "S1") -> None:
    """A guest that lives no longer than it takes to tell."""
    host.claim(name, "P0")
    host.delete(name)


def clean(host: DeviceHost) -> None:
    """Somebody has cleaned P0, and says so in Placement."""
    host.placement.other.set_inventory(
        host.provider("P0"), {PLAIN: {"total": 1, "max_unit": 1, "reserved": 0}}
    )


def refused(host: DeviceHost, name: str = "S2") -> str:
    """What a guest is told that wants P0 too."""
    with pytest.raises(ResourcesUnavailable) as refusal:
        host.claim(name, "P0")
    return refusal.value.message


def goes_on_in(host: DeviceHost, expected: list[str]) -> None:
    """Whatever passes and restarts follow, Placement has this."""
    for following in (host.cycle, host.start, host.cycle):
        following()
        assert host.tree == expected


def test_a_device_is_not_offered_again_when_its_guest_lived_shorter_than_a_pass(
    stored: DeviceHost,
) -> None:
    stored.start(ONCE)
    come_and_gone(stored)
    assert f"{P0} waits to be cleaned" in refused(stored)
    stored.cycle()
    assert stored.tree == USED
    refused(stored)
    goes_on_in(stored, USED)


def test_a_device_is_not_offered_again_when_placement_was_away(stored: DeviceHost) -> None:
    stored.start(ONCE)
    stored.placement.faults.add(faults.refused(), times=None)
    come_and_gone(stored)
    assert stored.cycle().state == "failed"
    refused(stored)
    stored.placement.faults.clear()
    stored.cycle()
    assert stored.tree == USED


def test_a_device_is_not_offered_again_when_its_card_was_missing_from_one_listing(
    stored: DeviceHost,
) -> None:
    used = use(stored)
    card = used.devices.pop("P0")
    used.cycle()
    assert used.tree == []
    used.devices["P0"] = card
    used.cycle()
    assert used.tree == USED
    refused(used)
    goes_on_in(used, USED)


def test_a_device_is_not_offered_again_when_its_spec_comes_back(stored: DeviceHost) -> None:
    used = use(stored)
    used.without_specs()
    assert used.tree == []
    used.start({"address": P0})
    assert used.tree == [f"{P0}: {PLAIN}=1 reserved 1"]
    used.start(ONCE)
    assert used.tree == USED
    refused(used)
    goes_on_in(used, USED)


def test_a_device_is_not_offered_again_when_its_provider_is_made_anew(used: DeviceHost) -> None:
    used.placement.other.delete_provider(used.provider("P0"))
    used.cycle()
    goes_on_in(used, USED)


def test_a_device_is_not_offered_again_when_its_class_is_another_one(used: DeviceHost) -> None:
    used.start({**ONCE, "resource_class": "CUSTOM_GPU"})
    assert used.tree == [f"{P0}: CUSTOM_GPU=1 reserved 1 {{HW_PCI_ONE_TIME_USE}}"]


def test_a_device_is_not_offered_again_when_placement_is_restored_to_a_day_before(
    host: DeviceHost,
) -> None:
    host.start(ONCE)
    backup = host.placement.snapshot()
    host.claim("S1", "P0")
    host.cycle()
    host.delete("S1")
    host.cycle()
    host.placement.restore(backup)
    host.cycle()
    goes_on_in(host, USED)


def test_a_device_is_not_offered_again_when_the_devices_cannot_be_listed(host: DeviceHost) -> None:
    host.start(ONCE)
    host.incomplete = {"pci": "no answer"}
    come_and_gone(host)
    host.cycle()
    assert host.tree == USED


@pytest.mark.parametrize("gone", [True, False])
def test_a_device_is_not_offered_again_when_its_agent_died_between_claim_and_publishing(
    gone: bool, stored: DeviceHost
) -> None:
    host = stored
    host.start(ONCE)
    host.claim("S1", "P0")
    if gone:
        host.delete("S1")
    # Another process on what is in the store, nothing else.
    host.start()
    assert host.tree == USED
    if not gone:
        host.delete("S1")
    host.cycle()
    assert host.tree == USED
    clean(host)
    host.start()
    assert host.tree == CLEAN
    host.claim("S2", "P0")


@pytest.mark.parametrize("adopt", [True, False])
def test_a_device_is_not_offered_again_when_the_agent_has_lost_its_store(
    adopt: bool, used: DeviceHost, tmp_path: Path
) -> None:
    used.stop()
    used.folder = tmp_path / "anew"
    used.start(adopt=adopt)
    assert (used.tree, used.free) == (USED, set())
    assert f"{P0} waits to be cleaned" in refused(used)
    goes_on_in(used, USED)
    clean(used)
    goes_on_in(used, CLEAN)
    used.claim("S2", "P0")


def test_a_device_that_somebody_has_cleaned_is_offered_again(used: DeviceHost) -> None:
    clean(used)
    assert used.cycle().state == "in-sync"
    goes_on_in(used, CLEAN)
    come_and_gone(used, "S2")
    used.cycle()
    goes_on_in(used, USED)


def test_a_device_in_use_is_not_clean_whatever_somebody_says(host: DeviceHost) -> None:
    host.start(ONCE)
    host.claim("S1", "P0")
    host.cycle()
    clean(host)
    host.cycle()
    assert host.tree == USED
    host.delete("S1")
    goes_on_in(host, USED)


def test_a_device_that_becomes_one_for_one_time_while_it_is_used_is_not_offered_again(
    host: DeviceHost,
) -> None:
    host.start({"address": P0})
    host.claim("S1", "P0")
    host.start(ONCE)
    host.delete("S1")
    goes_on_in(host, USED)
    refused(host)


def test_a_device_that_is_not_for_one_time_any_more_stays_reserved_until_it_is_cleaned(
    used: DeviceHost,
) -> None:
    used.start({"address": P0})
    refused(used)
    goes_on_in(used, [f"{P0}: {PLAIN}=1 reserved 1"])
    clean(used)
    used.cycle()
    come_and_gone(used, "S2")
    goes_on_in(used, [f"{P0}: {PLAIN}=1"])


def test_the_virtual_functions_of_a_card_that_waits_to_be_cleaned_are_not_offered_either(
    host: DeviceHost,
) -> None:
    host.start({"address": F3, "product_id": "1572", "one_time_use": True})
    host.claim("S1", "F3")
    host.cycle()
    host.delete("S1")
    host.cycle()
    host.start(V3)
    assert (host.tree, host.free) == ([f"{F3}: {VF}=4 reserved 4"], set())


# --- what an operator reserved --------------------------------------------------------------------


@pytest.fixture
def reserved(host: DeviceHost) -> DeviceHost:
    """A host of whose virtual functions an operator has reserved one."""
    host.start(V3)
    host.placement.other.set_inventory(
        host.provider("F3"), {VF: {"total": 4, "max_unit": 4, "reserved": 1}}
    )
    host.cycle()
    assert host.tree == RESERVED
    return host


def test_what_an_operator_reserved_survives_a_listing_without_the_card(
    reserved: DeviceHost,
) -> None:
    devices = dict(reserved.devices)
    for name in ("F3", "V30", "V31", "V32", "V33"):
        del reserved.devices[name]
    reserved.cycle()
    assert reserved.tree == []
    reserved.devices = devices
    reserved.cycle()
    goes_on_in(reserved, RESERVED)


@pytest.mark.parametrize("other", [(), ({"product_id": "1533"},)])
def test_what_an_operator_reserved_survives_that_nothing_of_the_card_is_offered(
    other: tuple[Any, ...], reserved: DeviceHost
) -> None:
    reserved.values = other
    reserved.start()
    assert not any(F3 in one for one in reserved.tree)
    reserved.start(V3)
    goes_on_in(reserved, RESERVED)


def test_what_an_operator_reserved_of_a_card_without_its_physical_function_survives_too(
    host: DeviceHost,
) -> None:
    del host.devices["F3"]
    host.start(V3)
    host.placement.other.set_inventory(
        host.provider("V30"), {VF: {"total": 4, "max_unit": 4, "reserved": 2}}
    )
    host.cycle()
    host.without_specs()
    host.start(V3)
    goes_on_in(host, [f"{F3}: {VF}=4 reserved 2"])


def test_what_an_operator_gives_free_again_stays_free(reserved: DeviceHost) -> None:
    for amount in (3, 1, 0):
        reserved.placement.other.set_inventory(
            reserved.provider("F3"), {VF: {"total": 4, "max_unit": 4, "reserved": amount}}
        )
        goes_on_in(reserved, [f"{F3}: {VF}=4" + (f" reserved {amount}" if amount else "")])
    reserved.without_specs()
    reserved.start(V3)
    assert reserved.tree == [f"{F3}: {VF}=4"]


def test_what_an_operator_reserved_is_given_free_by_telling_the_agent_too(
    reserved: DeviceHost,
) -> None:
    reserved.tracker.clean(ProviderUuid(ROOT), F3)
    goes_on_in(reserved, [f"{F3}: {VF}=4"])


@pytest.mark.parametrize("passed", [True, False])
def test_a_device_that_the_agent_is_told_to_be_clean_is_offered_again(
    passed: bool, host: DeviceHost
) -> None:
    host.start(ONCE)
    come_and_gone(host)
    if passed:
        host.cycle()
    for _ in range(2):
        host.tracker.clean(ProviderUuid(ROOT), P0)
    assert host.free == {"P0"}
    host.cycle()
    goes_on_in(host, CLEAN)
    come_and_gone(host, "S2")
    goes_on_in(host, USED)


def test_a_card_that_never_came_back_is_forgotten_once_it_is_told_to_be_clean(
    used: DeviceHost,
) -> None:
    del used.devices["P0"]
    used.cycle()
    assert list(used.rows) == ["P0"]
    used.tracker.clean(ProviderUuid(ROOT), P0)
    used.cycle()
    assert used.rows == {}


def test_what_waits_to_be_cleaned_costs_a_pass_nothing(used: DeviceHost) -> None:
    before = used.rows
    used.placement.clear()
    used.cycle()
    assert (len(used.placement.requests), used.rows) == (1, before)
