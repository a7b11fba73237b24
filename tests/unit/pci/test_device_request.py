"""What a flavor asks for by aliases."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.names import is_uuid, printable
from agent.pci.device_request import EXTRA_SPEC, DeviceRequestError, aliases, device_requests

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
