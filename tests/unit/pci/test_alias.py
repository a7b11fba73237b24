"""``[pci] alias``: every key, what has to be the same in objects of one name, and everything that
is wrong at once.
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.names import printable
from agent.pci.device_request import KEYS, aliases
from tests.unit.pci.test_device_spec import JSON

IDS = {"vendor_id": "8086", "product_id": "154c"}
NIC = {"name": "nic", **IDS}


def read(*values: Any, report: bool = False):
    return aliases([json.dumps(value) for value in values], report=report)


def wrong(*values: Any, report: bool = False) -> list[str]:
    found = read(*values, report=report)[1]
    assert all(one.remedy for one in found)
    return [one.message.removeprefix("[pci] alias ") for one in found]


def one_of(*values: Any, report: bool = False):
    found, errors = read(*values, report=report)
    assert errors == []
    (alias,) = found.values()
    return alias


def test_everything_said():
    alias = one_of(
        {
            **NIC,
            "device_type": "type-VF",
            "numa_policy": "preferred",
            "live_migratable": "yes",
            "capability_type": "pci",
            "resource_class": "fast nic",
            "traits": "purple",
        }
    )
    assert (alias.name, alias.policy) == ("nic", "preferred")
    (only,) = alias.alternatives
    assert only.spec == {
        "vendor_id": "8086",
        "product_id": "154c",
        "type": "type-VF",
        "live_migratable": "true",
    }
    assert (only.counted_by, only.traits) == ("CUSTOM_FAST_NIC", {"CUSTOM_PURPLE"})


def test_least_said():
    alias = one_of({**NIC, "vendor_id": "15B3"})
    assert (alias.policy, alias.alternatives[0].spec) == (
        "legacy",
        {"vendor_id": "15b3", "product_id": "154c"},
    )
    assert alias.alternatives[0].counted_by == "CUSTOM_PCI_15B3_154C"


def test_class_alone_is_enough_where_placement_chooses():
    alias = one_of({"name": "gpu", "resource_class": "vgpu"}, report=True)
    assert (alias.alternatives[0].spec, alias.alternatives[0].counted_by) == ({}, "VGPU")
    assert wrong({"name": "gpu", "resource_class": "vgpu"}) == [
        "#1: vendor_id and product_id are missing"
    ]
    assert wrong({"name": "gpu", "vendor_id": "10de"}, report=True) == ["#1: product_id is missing"]


def test_where_placement_chooses_a_name_has_one_object():
    assert wrong(NIC, {**NIC, "product_id": "1572"}, report=True) == [
        "#2: name = nic is that of #1 already"
    ]


def test_policy_has_to_be_the_same_in_all_objects_of_a_name():
    assert wrong(NIC, {**NIC, "numa_policy": "required"}) == [
        "#2: alias nic: numa_policy is required here and legacy in #1"
    ]
    assert wrong(NIC, {**NIC, "numa_policy": "legacy"}) == []


def test_type_has_to_be_the_same_in_all_objects_of_a_name_and_a_missing_one_is_another():
    assert wrong({**NIC, "device_type": "type-PF"}, {**NIC, "device_type": "type-VF"}) == [
        "#2: alias nic: device_type is type-VF here and type-PF in #1"
    ]
    assert wrong({**NIC, "device_type": "type-PF"}, NIC) == [
        "#2: alias nic: device_type is not given here and type-PF in #1"
    ]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"vendor_id": 8086}, "vendor_id = 8086"),
        ({"vendor_id": "808"}, 'vendor_id = "808"'),
        ({"vendor_id": "0x8086"}, 'vendor_id = "0x8086"'),
        ({"product_id": "*"}, 'product_id = "*"'),
        ({"product_id": " 154c"}, 'product_id = " 154c"'),
        ({"device_type": "vdpa"}, 'device_type = "vdpa"'),
        ({"device_type": ["type-VF"]}, 'device_type = ["type-VF"]'),
        ({"numa_policy": "near"}, 'numa_policy = "near"'),
        ({"capability_type": "usb"}, 'capability_type = "usb"'),
        ({"live_migratable": "maybe"}, 'live_migratable = "maybe"'),
        ({"traits": 3}, "traits = 3"),
        ({"name": "x" * 257}, "name has 257 characters"),
        ({"name": ""}, "name is missing"),
        ({"name": 3}, "name = 3"),
        ({"vendor": "8086"}, "vendor is an unknown key"),
    ],
)
def test_keys_that_cannot_be_used(change, told):
    assert wrong({**NIC, **change}) == [f"#1: {told}"]


@pytest.mark.parametrize("key", sorted({*KEYS} - {"name", "vendor_id", "product_id"}))
@pytest.mark.parametrize("value", [None, ""])
def test_a_key_without_a_value_says_nothing(key, value):
    assert one_of({**NIC, key: value}) == one_of(NIC)
    assert wrong({"name": "a", "resource_class": value}, report=True) == [
        "#1: vendor_id and product_id are missing"
    ]


def test_remedy_names_the_closest_key():
    assert read({**NIC, "vendorid": "1"})[1][0].remedy == "did you mean vendor_id?"


def test_value_that_is_a_list_is_no_alias():
    assert wrong([NIC]) == [
        '#1 = [{"name": "nic", "vendor_id": "8086", "product_id": "154c"}]: not an object'
    ]


def test_all_errors_of_all_values_in_their_order():
    assert wrong(
        {"name": "a", "vendor_id": "1"},
        [],
        {**NIC, "device_type": "x"},
        {**NIC, "numa_policy": "socket"},
    ) == [
        '#1: vendor_id = "1"',
        "#1: product_id is missing",
        "#2 = []: not an object",
        '#3: device_type = "x"',
        "#4: alias nic: numa_policy is socket here and legacy in #3",
    ]


@pytest.mark.long
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(KEYS),
            st.sampled_from(["8086", "type-PF", "pci", "a", "yes"]) | JSON,
            max_size=9,
        ),
        max_size=4,
    ),
    st.booleans(),
)
def test_no_json_crashes(values: list[dict[str, Any]], report: bool):
    found, errors = read(*values, report=report)
    assert all(error.remedy and printable(error.message) == error.message for error in errors)
    assert all(alias.alternatives for alias in found.values())
