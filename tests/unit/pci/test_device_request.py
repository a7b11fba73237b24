"""What a flavor asks for by aliases."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.names import is_uuid, printable
from agent.pci.device_request import (
    EXTRA_SPEC,
    KEYS,
    Alternative,
    DeviceRequestError,
    aliases,
    device_groups,
    device_requests,
)
from agent.placement.allocations.candidates import CandidateQuery, RequestGroup
from tests.unit.pci.test_device_spec import JSON

CLAIM = "5f9c2a34-7d1e-4a8b-9c46-000000000001"
ALIASES, _ = aliases(
    [
        json.dumps(one)
        for one in (
            {"name": "a", "vendor_id": "8086", "product_id": "154c"},
            {"name": "b", "vendor_id": "10de", "product_id": "1db4", "numa_policy": "required"},
            {"name": "b", "vendor_id": "10de", "product_id": "1db5", "numa_policy": "required"},
            {"name": "c:d", "vendor_id": "10de", "product_id": "1db6"},
        )
    ],
    report=False,
)


def asked(text, policy=None, claim=CLAIM):
    return [
        (request.alias, request.count)
        for request in device_requests({EXTRA_SPEC: text}, ALIASES, policy, claim)
    ]


def test_aliases_with_counts():
    assert asked("a:2, b:1") == [("a", 2), ("b", 1)]
    assert asked("a:1,a:3") == [("a", 1), ("a", 3)]
    assert asked(" a : 2 ") == [("a", 2)]


def test_name_may_have_colons():
    assert asked("c:d:2") == [("c:d", 2)]


@pytest.mark.parametrize(
    "text", ["a:0", "a:x", "a:-1", "a:", "a:1.5", "a:1025", "a:99999999999999999999", "a:+1", "a:٣"]
)
def test_counts_that_are_none(text):
    with pytest.raises(
        DeviceRequestError, match=f"^{EXTRA_SPEC} = .*: .* is no number of devices"
    ) as caught:
        asked(text)
    assert "count from 1 to 1024" in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("A:1", "A"),
        ("a:1,,b:1", "without a name"),
        ("", "without a name"),
        ("a:1,", "without a name"),
        ("aa", "aa"),
    ],
)
def test_alias_that_there_is_not_is_named(text, name):
    with pytest.raises(DeviceRequestError, match=f"there is no alias {name}"):
        asked(text)


def test_everything_wrong_is_told_at_once():
    with pytest.raises(DeviceRequestError) as caught:
        asked("a:0, x, b:y")
    assert caught.value.message == (
        f"{EXTRA_SPEC} = a:0, x, b:y: 0 is no number of devices; there is no alias x; y is no "
        "number of devices"
    )


def test_where_there_are_no_aliases_that_is_told():
    with pytest.raises(DeviceRequestError) as caught:
        device_requests({EXTRA_SPEC: "a"}, {}, None, CLAIM)
    assert caught.value.remedy == "[pci] alias has none"


def test_request_has_all_alternatives_and_the_policy_of_its_alias():
    one, other = device_requests({EXTRA_SPEC: "b,a"}, ALIASES, None, CLAIM)
    assert [spec["product_id"] for spec in one.specs] == ["1db4", "1db5"]
    assert (one.policy, other.policy) == ("required", "legacy")


def test_policy_of_flavor_or_image_wins_for_all_requests():
    assert {
        request.policy for request in device_requests({EXTRA_SPEC: "b,a"}, ALIASES, "socket", CLAIM)
    } == {"socket"}


def test_ids_are_uuids_and_the_same_for_the_same_claim_only():
    ids = [request.id for request in device_requests({EXTRA_SPEC: "a,a"}, ALIASES, None, CLAIM)]
    assert ids == [
        request.id for request in device_requests({EXTRA_SPEC: "a,a"}, ALIASES, None, CLAIM)
    ]
    others = [
        request.id
        for request in device_requests({EXTRA_SPEC: "a,a"}, ALIASES, None, CLAIM[:-1] + "2")
    ]
    assert all(map(is_uuid, ids))
    assert len({*ids, *others}) == 4


@given(
    st.text(max_size=20)
    | st.lists(st.sampled_from(["a", "b", ":", ",", " ", "1", "0", "c:d"]), max_size=12).map(
        "".join
    )
)
def test_every_text_is_a_request_or_an_error(text: str):
    try:
        found = device_requests({EXTRA_SPEC: text}, ALIASES, None, CLAIM)
    except DeviceRequestError as error:
        assert error.remedy
        assert printable(error.message) == error.message
    else:
        assert len(found) == text.count(",") + 1
        assert all(1 <= one.count <= 1024 for one in found)


# --- ``[pci] alias`` ---


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


# --- what Placement is asked for devices ---


ID = "5f9c2a34-7d1e-4a8b-9c46-000000000001"
MANAGED = "COMPUTE_MANAGED_PCI_DEVICE"


def test_every_device_has_a_group_of_its_own():
    groups = device_groups(ID, 3, Alternative(**IDS))
    assert [group.suffix for group in groups] == [f"{ID}-0", f"{ID}-1", f"{ID}-2"]
    assert all(group.resources == {"CUSTOM_PCI_8086_154C": 1} for group in groups)


def test_class_and_traits_of_the_alias():
    (group,) = device_groups(
        ID, 1, Alternative(**IDS, resource_class="VGPU", traits=frozenset({"CUSTOM_A"}))
    )
    assert (group.resources, group.required, group.forbidden) == (
        {"VGPU": 1},
        {MANAGED, "CUSTOM_A"},
        set(),
    )


@pytest.mark.parametrize(
    ("said", "required", "forbidden"),
    [
        (None, {MANAGED}, set()),
        (True, {MANAGED, "HW_PCI_LIVE_MIGRATABLE"}, set()),
        (False, {MANAGED}, {"HW_PCI_LIVE_MIGRATABLE"}),
    ],
)
def test_live_migration_is_required_or_forbidden_as_the_alias_says(said, required, forbidden):
    (group,) = device_groups(ID, 1, Alternative(**IDS, live_migratable=said))
    assert (group.required, group.forbidden) == (required, forbidden)


def test_trait_is_never_both_required_and_forbidden():
    (group,) = device_groups(
        ID,
        1,
        Alternative(**IDS, live_migratable=False, traits=frozenset({"HW_PCI_LIVE_MIGRATABLE"})),
    )
    assert group.required & group.forbidden == set()


def test_alias_that_names_no_class_asks_placement_for_nothing():
    assert device_groups(ID, 2, Alternative(vendor_id="8086")) == ()


def test_groups_make_a_query_that_placement_takes():
    groups = [
        RequestGroup(group.suffix, group.resources, group.required, group.forbidden)
        for group in device_groups(ID, 11, Alternative(**IDS, live_migratable=False))
    ]
    query = CandidateQuery(groups, policy="none")
    assert list(query.problems()) == []
    assert f"resources{ID}-10=CUSTOM_PCI_8086_154C%3A1" in query.encoded()
