"""What device_spec comes to in Placement."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.device_host import NODE, DeviceHost, errors
from tests.unit.pci import scene

P0, F2, F3 = "0000:81:00.0", "0000:81:02.0", "0000:82:03.0"
V2 = {"product_id": "154c", "address": "0000:81:02.*"}

# case → values of device_spec → cards in Placement
SHAPES: dict[str, tuple[list[Any], list[str]]] = {
    "nothing is offered": ([], []),
    "every device of a kind": (
        [{"vendor_id": "8086", "product_id": "1533"}],
        ["0000:81:00.0: CUSTOM_PCI_8086_1533=1", "0000:81:01.0: CUSTOM_PCI_8086_1533=1"],
    ),
    "a class and traits": (
        [{"address": P0, "resource_class": "pgpu", "traits": "HW_GPU_API_VULKAN,purple"}],
        [f"{P0}: PGPU=1 {{CUSTOM_PURPLE, HW_GPU_API_VULKAN}}"],
    ),
    "a PF alone": ([{"product_id": "1572", "address": F2}], [f"{F2}: CUSTOM_PCI_8086_1572=1"]),
    "VFs are counted on their PF": ([V2], [f"{F2}: CUSTOM_PCI_8086_154C=2"]),
    "VFs by the address of their PF": (
        [{"address": F2, "product_id": "154c"}],
        [f"{F2}: CUSTOM_PCI_8086_154C=2"],
    ),
    "VFs by expressions": (
        [{"address": {"bus": "82", "slot": "03", "function": "[1-2]"}}],
        [f"{F3}: CUSTOM_PCI_8086_154C=2"],
    ),
    "the first object counts": (
        [{"address": P0, "resource_class": "a"}, {"address": P0, "resource_class": "b"}],
        [f"{P0}: CUSTOM_A=1"],
    ),
    "devices of a physical network": (
        [{"product_id": "154c", "physical_network": "physnet1"}],
        [],
    ),
    "no physical network after all": (
        [{"product_id": "154c", "physical_network": None}],
        [f"{F2}: CUSTOM_PCI_8086_154C=2", f"{F3}: CUSTOM_PCI_8086_154C=4"],
    ),
    "live migratable": (
        [{"address": P0, "live_migratable": "Yes"}],
        [f"{P0}: CUSTOM_PCI_8086_1533=1 {{HW_PCI_LIVE_MIGRATABLE}}"],
    ),
    "one VF here and the PF there": (
        [{"address": "0000:81:02.1"}, {"product_id": "1572", "address": F3}],
        [f"{F2}: CUSTOM_PCI_8086_154C=1", f"{F3}: CUSTOM_PCI_8086_1572=1"],
    ),
}


@pytest.mark.parametrize("scenario", SHAPES, ids=lambda text: text.replace(" ", "_"))
def test_the_cards_in_placement(scenario: str, host: DeviceHost) -> None:
    values, tree = SHAPES[scenario]
    report = host.start(*values)
    assert (report.state, host.tree) == ("changed", tree)
    assert set(host.parents.values()) <= {NODE}
    assert host.cycle().state == "in-sync"
    host.placement.clear()
    assert host.start().state == "in-sync"
    assert (host.placement.writes(), host.placement.count()) == ([], 1)


# number → values → what has to be said of provider, devices, values and objects
WRONG: dict[str, tuple[list[Any], tuple[str, ...]]] = {
    "a PF and its VFs": (
        [{"address": F2}],
        ("c1_0000:81:02.0", "0000:81:02.0 (#1) and 0000:81:02.1 (#1)", "physical function"),
    ),
    "two classes on one card": (
        [
            {"address": "0000:82:03.1", "resource_class": "x"},
            {"product_id": "154c", "resource_class": "y"},
        ],
        (
            "c1_0000:82:03.0",
            "0000:82:03.1 (#1) and 0000:82:03.2 (#2)",
            "CUSTOM_X of the first and CUSTOM_Y of the second",
        ),
    ),
    "two sets of traits on one card": (
        [{"address": "0000:82:03.1", "traits": "a"}, {"product_id": "154c", "traits": "b"}],
        (
            "c1_0000:82:03.0",
            "0000:82:03.1 (#1) and 0000:82:03.2 (#2)",
            "traits is CUSTOM_A of the first and CUSTOM_B of the second",
        ),
    ),
    "one VF alone is live migratable": (
        [{"address": "0000:82:03.1", "live_migratable": "yes"}, {"product_id": "154c"}],
        (
            "c1_0000:82:03.0",
            "HW_PCI_LIVE_MIGRATABLE of the first and none of the second",
            "device_spec #1, #2",
        ),
    ),
    "VFs for one time": (
        [{"product_id": "154c", "one_time_use": False}],
        ("c1_0000:81:02.0: 0000:81:02.1", "one_time_use = false cannot be said", "c1_0000:82:03.0"),
    ),
}


@pytest.mark.parametrize("scenario", WRONG, ids=lambda text: text.replace(" ", "_"))
def test_what_no_provider_can_stand_for_ends_the_start(scenario: str, host: DeviceHost) -> None:
    values, said = WRONG[scenario]
    report = host.start(*values)
    assert (report.state, [one.fatal for one in report.errors]) == (
        "failed",
        [True] * len(report.errors),
    )
    assert [text for text in said if text not in errors(report)] == []
    assert host.placement.writes() == []


def test_all_that_is_wrong_is_told_at_once(host: DeviceHost) -> None:
    report = host.start({"address": F2}, *WRONG["two classes on one card"][0])
    assert [one.message.split(": ")[1] for one in report.errors] == [
        "provider c1_0000:81:02.0",
        "provider c1_0000:82:03.0",
    ]


def test_a_card_that_becomes_wrong_keeps_its_provider_and_the_others_go_on(
    host: DeviceHost,
) -> None:
    virtual = {name: host.devices.pop(name) for name in ("V20", "V21")}
    host.start({"address": F2}, {"address": P0})
    assert host.tree == [f"{P0}: CUSTOM_PCI_8086_1533=1", f"{F2}: CUSTOM_PCI_8086_1572=1"]
    host.devices.update(virtual)
    del host.devices["P0"]
    report = host.cycle()
    assert report.state == "degraded"
    assert "c1_0000:81:02.0" in errors(report)
    assert host.tree == [f"{F2}: CUSTOM_PCI_8086_1572=1"]
    host.placement.clear()
    assert host.cycle().state == "degraded"
    assert host.placement.writes() == []


def test_the_name_is_in_upper_case(host: DeviceHost) -> None:
    host.devices = {"0000:af:00.0": scene.plain("0000:af:00.0")}
    host.start({"address": "0000:AF:00.0"})
    assert host.tree == ["0000:AF:00.0: CUSTOM_PCI_8086_1533=1"]


def test_a_domain_of_32_bits_is_one_as_any_other(host: DeviceHost) -> None:
    host.devices = {"P0": host.devices["P0"], "10000:01:00.0": scene.plain("10000:01:00.0")}
    host.start({"vendor_id": "8086"})
    assert host.tree == [
        "0000:81:00.0: CUSTOM_PCI_8086_1533=1",
        "10000:01:00.0: CUSTOM_PCI_8086_1533=1",
    ]


@pytest.mark.parametrize(
    ("serial", "tree"), [("MT1", [f"{F2}: CUSTOM_PCI_8086_154C=2"]), (None, [])]
)
def test_remote_managed_are_virtual_functions_of_a_card_with_a_serial_number(
    serial: str | None, tree: list[str], host: DeviceHost
) -> None:
    host.devices["F2"] = replace(host.devices["F2"], serial_number=serial)
    host.start({"remote_managed": True, "address": F2, "product_id": "154c"})
    assert host.tree == tree


def test_a_physical_function_cannot_be_remote_managed(host: DeviceHost) -> None:
    report = host.start({"remote_managed": True, "address": F2, "product_id": "1572"})
    assert report.state == "failed"
    assert "physical function" in errors(report)


def test_what_an_operator_adds_to_a_card_stays(host: DeviceHost) -> None:
    host.start({"address": P0, "traits": "a"})
    other, uuid = host.placement.other, host.provider("P0")
    other.set_traits(uuid, {*other.traits(uuid), "CUSTOM_RACK7"})
    host.start({"address": P0, "traits": "b"})
    assert host.tree == [f"{P0}: CUSTOM_PCI_8086_1533=1 {{CUSTOM_B, CUSTOM_RACK7}}"]
