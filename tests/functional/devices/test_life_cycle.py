"""Devices that come, go, are used and change, and what Placement has of them."""

from typing import Any

import pytest

from agent.model.operation import SetInventory
from agent.model.report import NodeReport
from tests.support.agent import operations
from tests.support.device_host import ROOT, DeviceHost, errors
from tests.support.tracking import guest
from tests.unit.pci import scene

P0, F2, F3 = "0000:81:00.0", "0000:81:02.0", "0000:82:03.0"
VF, PF = "CUSTOM_PCI_8086_154C", "CUSTOM_PCI_8086_1572"
V2 = {"product_id": "154c", "address": "0000:81:02.*"}
P2 = {"product_id": "1572", "address": F2}


def inventories_written(report: NodeReport) -> int:
    return sum(isinstance(one, SetInventory) for one in operations(report))


def held(report: NodeReport) -> list[str]:
    return [one.detail for one in report.drift if one.kind == "held-device"]


def test_a_device_in_use_that_is_not_offered_any_more_keeps_its_provider(
    host: DeviceHost,
) -> None:
    host.start(V2)
    host.claim("S1", "V20")
    host.allocate("S1", V20=1)
    report = host.without_specs()
    assert (report.state, host.tree) == ("changed", [f"{F2}: {VF}=1"])
    assert held(report) == [
        (
            f"c1_{F2}: device 0000:81:02.1 is not offered any more, but instance {guest('S1')} has "
            "it; it stays counted"
        )
    ]
    assert host.cycle().state == "in-sync"
    host.delete("S1")
    host.cycle()
    # In one pass, because the agent itself takes the allocation of a guest that its records know to
    # be deleted.
    assert (host.tree, host.allocated("S1")) == ([], {})


@pytest.mark.parametrize("on_record", [True, False], ids=["on record", "only in Placement"])
def test_a_device_in_use_is_offered_as_something_else_once_it_is_free(
    host: DeviceHost, on_record: bool
) -> None:
    host.start(P2)
    if on_record:
        host.claim("S1", "F2")
    host.allocate("S1", F2=1)
    report = host.start(V2)
    assert (errors(report), host.tree) == ("", [f"{F2}: {PF}=1"])
    assert host.cycle().state == "in-sync"
    (drift,) = [one for one in report.drift if one.kind == "held-device"]
    assert f"{VF}{', which' * (not on_record)} waits until" in drift.detail
    assert guest("S1") in drift.detail
    host.delete("S1") if on_record else host.release("S1")
    for _ in range(2):
        host.cycle()
    assert host.tree == [f"{F2}: {VF}=2"]


@pytest.mark.parametrize(
    ("before", "after", "tree"),
    [(P2, V2, f"{F2}: {VF}=2"), (V2, P2, f"{F2}: {PF}=1")],
    ids=["s_33", "s_34"],
)
def test_an_unused_card_changes_its_class_in_one_write(
    before: Any, after: Any, tree: str, host: DeviceHost
) -> None:
    host.start(before)
    uuid = host.provider("F2")
    report = host.start(after)
    assert (host.tree, host.provider("F2"), inventories_written(report)) == ([tree], uuid, 1)


def test_a_total_does_not_go_below_what_is_allocated_by_guests_that_nobody_told_of(
    host: DeviceHost,
) -> None:
    host.start(V2)
    host.allocate("S1", V20=2)
    del host.devices["V21"]
    report = host.cycle()
    assert (report.state, host.tree) == ("in-sync", [f"{F2}: {VF}=2"])
    assert held(report) == [
        f"c1_{F2}: 2 of {VF} are allocated to {guest('S1')}, but the card has only 1; the total stays "
        "at 2"
    ]
    host.release("S1")
    host.cycle()
    assert host.tree == [f"{F2}: {VF}=1"]


def both_in_use(host: DeviceHost) -> None:
    """Two guests have the two functions of a card; then V21 is not there any more."""
    host.start(V2)
    for name, device in (("S1", "V20"), ("S2", "V21")):
        host.claim(name, device)
        host.allocate(name, **{device: 1})
    host.cycle()
    del host.devices["V21"]


def candidates(host: DeviceHost) -> int:
    """In how many ways Placement offers one function."""
    return len(
        host.placement.other.call("GET", f"/allocation_candidates?resources={VF}:1").json()[
            "allocation_requests"
        ]
    )


def test_a_pool_in_use_that_shrinks_keeps_its_total_and_nobody_is_offered_what_is_gone(
    host: DeviceHost,
) -> None:
    both_in_use(host)
    report = host.cycle()
    assert (host.tree, candidates(host)) == ([f"{F2}: {VF}=2"], 0)
    assert held(report) == [
        (
            f"c1_{F2}: device 0000:81:02.2 is not offered any more, but instance {guest('S2')} has "
            "it; it stays counted"
        )
    ]
    # The function that is there can be had by another as soon as it is free, and it alone.
    host.delete("S1")
    host.cycle()
    assert (host.tree, candidates(host)) == ([f"{F2}: {VF}=2"], 1)
    host.claim("S3", "V20")
    host.allocate("S3", V20=1)
    host.cycle()
    host.delete("S2")
    host.cycle()
    # One pass takes the allocation away, and the next the unit that it was of.
    host.cycle()
    assert (host.tree, candidates(host)) == ([f"{F2}: {VF}=1"], 0)


def test_an_agent_that_starts_keeps_what_a_guest_has_and_the_host_does_not_show(
    host: DeviceHost,
) -> None:
    both_in_use(host)
    report = host.start(V2)
    gone = (
        f"c1_{F2}: device 0000:81:02.2 is not offered any more, but instance {guest('S2')} has "
        "it; it stays counted"
    )
    assert (report.state, report.errors, held(report)) == ("in-sync", (), [gone])
    assert (host.tree, candidates(host)) == ([f"{F2}: {VF}=2"], 0)
    # It may come back; or its guest goes.
    host.devices["V21"] = scene.host()["V21"]
    assert held(host.cycle()) == []
    del host.devices["V21"]
    assert held(host.start(V2)) == [gone]
    host.delete("S2")
    host.cycle()
    host.cycle()
    assert (host.tree, host.allocated("S2")) == ([f"{F2}: {VF}=1"], {})


def test_what_the_host_shows_may_be_offered_or_not_when_an_agent_starts(
    host: DeviceHost,
) -> None:
    both_in_use(host)
    host.devices = scene.host()
    assert host.start({**V2, "address": "0000:81:02.1"}).state == "in-sync"
    assert host.tree == [f"{F2}: {VF}=2"]
    host.devices, host.incomplete = {}, {"pci": "no answer"}
    assert host.start(V2).state == "degraded"
    assert host.tree == [f"{F2}: {VF}=2"]


def test_devices_that_could_not_be_listed_stay(host: DeviceHost) -> None:
    host.start(V2, {"address": P0})
    before = host.placement.dump()
    host.devices, host.incomplete = {}, {"pci": "no answer"}
    report = host.cycle()
    assert (report.state, errors(report)) == (
        "degraded",
        "facts of c1: pci is not complete: no answer",
    )
    assert host.placement.dump() == before
    host.devices, host.incomplete = scene.host(), {}
    assert host.cycle().state == "in-sync"


@pytest.mark.parametrize("options", [{}, {"adopt": True}], ids=["as it was", "taken over"])
def test_reporting_is_not_switched_off_by_an_option_alone(options: Any, host: DeviceHost) -> None:
    host.start(V2, {"address": P0})
    host.values = ()
    before = host.placement.dump()
    report = host.start(report=False, **options)
    assert report.state == "failed"
    assert errors(report) == (
        f"[pci] report_in_placement is false, but Placement has the devices of c1: c1_{P0}, c1_{F2}"
    )
    assert "agent pci unreport" in report.errors[0].remedy
    assert host.placement.dump() == before


@pytest.mark.parametrize(("reserved", "left"), [(1, 1), (4, 3)])
def test_what_an_operator_reserved_is_sent_again_with_another_total(
    reserved: int, left: int, host: DeviceHost
) -> None:
    host.start({"product_id": "154c", "address": F3})
    host.placement.other.set_inventory(
        host.provider("F3"), {VF: {"total": 4, "max_unit": 4, "reserved": reserved}}
    )
    del host.devices["V33"]
    host.cycle()
    assert host.tree == [f"{F3}: {VF}=3 reserved {left}"]


def test_the_cards_of_another_agent_are_taken_over_whole(host: DeviceHost) -> None:
    other = host.placement.other
    other.create_provider("c1", ROOT)
    card = other.create_provider(f"c1_{F2}", parent=ROOT)
    other.set_inventory(card, {PF: {"total": 1, "max_unit": 1}})
    other.set_traits(card, {"COMPUTE_MANAGED_PCI_DEVICE", "OWNER_NOVA"})
    gone = other.create_provider("c1_0000:90:00.0", parent=ROOT)
    other.set_inventory(gone, {"PGPU": {"total": 1, "max_unit": 1}})
    other.set_traits(gone, {"COMPUTE_MANAGED_PCI_DEVICE", "OWNER_NOVA"})
    report = host.start(P2)
    assert host.tree == [f"{F2}: {PF}=1", "0000:90:00.0: PGPU=1"]
    assert [one.kind for one in report.drift] == ["adoption-needed"]
    host.start(V2, adopt=True)
    assert (host.tree, host.provider("F2")) == ([f"{F2}: {VF}=2"], card)


def test_a_card_that_was_held_is_not_left_reserved_when_it_comes_back_after_a_pass_with_incomplete_facts(
    host: DeviceHost,
) -> None:
    host.start({"address": "0000:81:00.0"})
    host.allocate("stranger", P0=1)
    card = host.devices.pop("P0")
    for _ in range(2):
        host.cycle()
    assert host.tree == ["0000:81:00.0: CUSTOM_PCI_8086_1533=1 reserved 1"]
    host.incomplete = {"pci": "nobody answers"}
    host.cycle()
    assert host.tree == ["0000:81:00.0: CUSTOM_PCI_8086_1533=1 reserved 1"]
    host.devices["P0"], host.incomplete = card, {}
    host.cycle()
    assert host.tree == ["0000:81:00.0: CUSTOM_PCI_8086_1533=1"]
    # What an operator reserves stays his, also then.
    uuid = host.provider("P0")
    record = host.placement.other.inventory(uuid)["CUSTOM_PCI_8086_1533"]
    host.placement.other.release(guest("stranger"))
    host.placement.other.set_inventory(uuid, {"CUSTOM_PCI_8086_1533": {**record, "reserved": 1}})
    host.incomplete = {"pci": "nobody answers"}
    host.cycle()
    host.incomplete = {}
    host.cycle()
    assert host.tree == ["0000:81:00.0: CUSTOM_PCI_8086_1533=1 reserved 1"]


# --- physical networks ----------------------------------------------------------------------------

V3 = {"product_id": "154c", "address": "0000:82:03.*"}


@pytest.fixture
def networked(host: DeviceHost) -> DeviceHost:
    """A guest has V30, which was given for a physical network that its spec does not
    name any more.
    """
    report = host.start({**V3, "physical_network": "physnet1"})
    assert report.hint == (
        "not counted in Placement, because they have a physical_network: 0000:82:03.1, "
        "0000:82:03.2, 0000:82:03.3 and 1 more"
    )
    host.claim("S1", "V30")
    host.allocate("S1")
    host.cycle()
    assert host.tree == []
    return host


def test_a_function_in_use_whose_spec_names_no_physical_network_any_more_counts(
    networked: DeviceHost,
) -> None:
    report = networked.start(V3)
    assert (networked.tree, networked.allocated("S1"), held(report)) == (
        [f"{F3}: {VF}=4"],
        {F3: {VF: 1}},
        [],
    )
    assert networked.cycle().state == "in-sync"
    networked.delete("S1")
    networked.cycle()
    assert (networked.tree, networked.allocated("S1")) == ([f"{F3}: {VF}=4"], {})


def test_a_function_in_use_that_cannot_be_counted_any_more_because_others_have_all_is_told(
    networked: DeviceHost,
) -> None:
    networked.release("S1")
    networked.start(V3)
    networked.allocate("stranger", V30=4)
    networked.placement.other.claim({ROOT: {"VCPU": 1}}, guest("S1"))
    report = networked.cycle()
    told = [one.detail for one in report.drift if VF in one.detail and guest("S1") in one.detail]
    assert told == [f"instance {guest('S1')} holds 0 {VF} of c1_{F3} instead of 1"]


@pytest.mark.parametrize("other", [(), ({"product_id": "154c", "address": "0000:82:03.2"},)])
def test_a_function_of_a_physical_network_that_is_not_offered_any_more_is_networkings_to_count(
    other: tuple[Any, ...], networked: DeviceHost
) -> None:
    networked.values = other
    report = networked.start()
    assert (networked.tree, networked.allocated("S1"), held(report)) == (
        [f"{F3}: {VF}=1"] if other else [],
        {},
        [],
    )
