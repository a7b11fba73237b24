"""Which devices an operator's objects offer, and what Placement is told of them."""

from dataclasses import replace

import pytest

from agent.model.devices import PciDevice
from agent.pci.settings import PresentDevices, match_devices
from tests.unit.pci.scene import (
    by_name,
    errors,
    host,
    offered,
    physical,
    plain,
    present,
    specs,
    virtual,
)

PF2 = {"address": "0000:81:02.0"}


def classes(found):
    return {name: one.resource_class for name, one in found.items()}


ONE_FUNCTION = {"domain": "0000", "bus": "81", "slot": "02", "function": "0"}
THIRD_SLOT = {"bus": "82", "slot": "03", "function": "[1-2]"}
PARTS = [{"address": "0000:81:02.1"}, {"address": "0000:82:03.0", "product_id": "1572"}]
VIRTUAL_CLASS = "CUSTOM_PCI_8086_154C"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ((), {}),
        (
            ({"vendor_id": "8086", "product_id": "1533"},),
            dict.fromkeys(("P0", "P1"), "CUSTOM_PCI_8086_1533"),
        ),
        (({"product_id": "1572", **PF2},), {"F2": "CUSTOM_PCI_8086_1572"}),
        (
            ({"product_id": "154c", "address": "0000:81:02.*"},),
            dict.fromkeys(("V20", "V21"), VIRTUAL_CLASS),
        ),
        ((PARTS,), {"V20": VIRTUAL_CLASS, "F3": "CUSTOM_PCI_8086_1572"}),
        (
            tuple({"address": "0000:81:00.0", "resource_class": name} for name in "ab"),
            {"P0": "CUSTOM_A"},
        ),
    ],
    ids=["nothing", "ids", "a PF", "a glob", "parts of two cards", "the first of two"],
)
def test_what_is_offered_has_its_class(given, found):
    assert classes(offered(*given)) == found


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (PF2, {"F2", "V20", "V21"}),
        ({"product_id": "154c", **PF2}, {"V20", "V21"}),
        ({"product_id": "154c", "address": THIRD_SLOT}, {"V30", "V31"}),
        # No single address of a PF, so that its virtual functions are not meant.
        ({"address": "*:81:02.0"}, {"F2"}),
        ({"address": ONE_FUNCTION}, {"F2"}),
        ({"address": "0000:81:02.1"}, {"V20"}),
    ],
)
def test_the_address_of_a_physical_function_means_its_virtual_ones_too(given, found):
    assert set(offered(given)) == found


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"devname": "ens1f0"}, "devname cannot be used with [pci] report_in_placement"),
        ({"adress": "0000:81:00.0"}, "adress is an unknown key"),
        ({"vendor_id": 8086}, "vendor_id must be a string of hex digits, not 8086"),
    ],
)
def test_what_is_wrong_is_told(given, told):
    assert errors(given) == [f"#1: {told}"]


def test_first_match_counts_for_virtual_functions_of_one_card():
    found = offered(
        [
            {"address": "0000:82:03.1", "resource_class": "x"},
            {"product_id": "154c", "address": "0000:82:*.*", "resource_class": "y"},
        ]
    )
    assert classes(found) == {
        "V30": "CUSTOM_X",
        "V31": "CUSTOM_Y",
        "V32": "CUSTOM_Y",
        "V33": "CUSTOM_Y",
    }
    assert {name: one.spec.place for name, one in found.items() if name < "V32"} == {
        "V30": "#1.1",
        "V31": "#1.2",
    }


def test_live_migratable_is_a_trait():
    found = offered(
        [
            {"address": "0000:82:03.1", "live_migratable": "yes"},
            {"address": "0000:82:03.2"},
            {"address": "0000:82:03.3", "live_migratable": "no"},
        ]
    )
    assert {name: one.traits for name, one in found.items()} == {
        "V30": {"HW_PCI_LIVE_MIGRATABLE"},
        "V31": set(),
        "V32": set(),
    }


def test_physical_network_is_a_tag():
    found = offered({"product_id": "154c", "physical_network": "physnet1"})
    assert len(found) == 6
    assert all(one.spec.tags == {"physical_network": "physnet1"} for one in found.values())


@pytest.mark.parametrize("network", [None, ""])
def test_no_physical_network_is_none(network):
    found = offered({"product_id": "154c", "physical_network": network})
    assert len(found) == 6
    assert all(one.spec.tags == {} and one.spec.physical_network is None for one in found.values())


def test_one_time_use_needs_the_report_in_placement():
    (error,) = errors({"address": "0000:81:00.0", "one_time_use": True}, report=False)
    assert error == "#1: one_time_use = true needs [pci] report_in_placement"
    assert offered({"address": "0000:81:00.0", "one_time_use": "true"})["P0"].traits == {
        "HW_PCI_ONE_TIME_USE"
    }
    assert (
        offered({"address": "0000:81:00.0", "one_time_use": "no"}, report=False)["P0"].traits
        == set()
    )


def test_one_time_use_of_a_virtual_function_is_known_as_said_and_gives_no_trait():
    found = offered({"product_id": "154c", "one_time_use": False})
    assert {one.spec.one_time_use for one in found.values()} == {False}
    assert offered({"product_id": "154c", "one_time_use": True})["V20"].traits == set()
    assert offered({"product_id": "154c"})["V20"].spec.one_time_use is None


def test_serial_number_of_the_function_itself_counts_as_well():
    own = present(
        V20=virtual("V20", "F2", serial_number="MT2"), V21=virtual("V21", "F2", serial_number="")
    )
    assert set(offered({"remote_managed": True}, on=own)) == {"V20"}


def test_device_that_becomes_a_physical_function_is_noticed():
    spec = specs({"product_id": "154c", **PF2})
    plain_card = replace(host()["F2"], max_virtual_functions=0, virtual_functions=())
    before = PresentDevices.of([plain_card, host()["V20"]])
    assert by_name(match_devices(before, spec)) == {}
    assert set(by_name(match_devices(PresentDevices.of([host()["F2"], host()["V20"]]), spec))) == {
        "V20"
    }


def test_vendor_and_product_must_both_fit():
    other = PciDevice(host()["P0"].address, "10de", "1533")
    assert set(offered({"vendor_id": "10de", "product_id": "1533"}, on=present(P0=other))) == {"P0"}
    assert set(offered({"vendor_id": "*", "product_id": "1533"}, on=present(P0=other))) == {
        "P0",
        "P1",
    }


def test_types_of_devices():
    found = {
        "type-PF": physical("F2"),
        "type-VF": virtual("V20", "F2"),
        "vdpa": virtual("V21", "F2", has_vdpa=True),
        "type-PCI": plain("P0", has_vdpa=True),
    }
    assert {name: one.type for name, one in found.items()} == {name: name for name in found}
