"""The grammar of ``[pci] device_spec``: every key, and everything that is wrong at once."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.model.names import printable
from agent.pci.device_spec import KEYS, device_specs
from tests.unit.pci.scene import errors, parsed, specs

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from([*KEYS, "bus"]) | st.text(max_size=6), inner, max_size=6)
    ),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("given_id", "kept"),
    [
        ("8086", "8086"),
        ("1AF4", "1af4"),
        ("0x80", "0080"),
        (" 8086 ", "8086"),
        ("0X15B3", "15b3"),
        ("f", "000f"),
        ("0", "0000"),
        ("00008086", "8086"),
        ("*", None),
    ],
)
def test_ids(given_id, kept):
    (spec,) = specs({"vendor_id": given_id, "product_id": given_id})
    assert (spec.vendor_id, spec.product_id) == (kept, kept)


@pytest.mark.parametrize(
    "wrong", ["", "10000", "0x10000", "80g6", "-1", "8_0", "**", "0x", "8086 1533"]
)
def test_ids_that_are_none(wrong):
    assert errors({"product_id": wrong}) == [f"#1: product_id = {json.dumps(wrong)}"]


@pytest.mark.parametrize("wrong", [8086, 1.5, True, None, ["8086"], {"a": 1}])
def test_ids_that_are_no_text(wrong):
    assert errors({"product_id": wrong}) == [
        f"#1: product_id must be a string of hex digits, not {json.dumps(wrong)}"
    ]


@pytest.mark.parametrize(
    "key", ["trusted", "remote_managed", "managed", "live_migratable", "one_time_use"]
)
@pytest.mark.parametrize(
    "words", [("true", "T", "Yes", "y", "ON", "1", " true "), ("false", "F", "No", "n", "OFF", "0")]
)
def test_words_for_yes_and_no(key, words):
    wanted = words[0] == "true"
    for word in (*words, wanted):
        (spec,) = specs({key: word})
        assert getattr(spec, key) is wanted


@pytest.mark.parametrize(
    "key", ["trusted", "remote_managed", "managed", "live_migratable", "one_time_use"]
)
@pytest.mark.parametrize("wrong", ["maybe", 1, 0, []])
def test_what_is_neither_yes_nor_no(key, wrong):
    assert errors({key: wrong}) == [f"#1: {key} = {json.dumps(wrong)}"]


@pytest.mark.parametrize(
    "key",
    [
        "address",
        "devname",
        "physical_network",
        "trusted",
        "remote_managed",
        "managed",
        "live_migratable",
        "one_time_use",
        "resource_class",
        "traits",
    ],
)
@pytest.mark.parametrize("value", [None, ""])
def test_a_key_without_a_value_says_nothing(key, value):
    assert specs({"product_id": "154c", key: value}) == specs({"product_id": "154c"})
    assert errors({"product_id": "154c", "devname": value, "address": "0000:81:00.0"}) == []


def test_defaults():
    (spec,) = specs({})
    assert (
        spec.vendor_id,
        spec.product_id,
        spec.devname,
        spec.physical_network,
        spec.resource_class,
    ) == (None,) * 5
    assert (
        spec.trusted,
        spec.remote_managed,
        spec.managed,
        spec.live_migratable,
        spec.one_time_use,
    ) == (None, False, None, None, None)
    assert (spec.traits, spec.tags) == (frozenset(), {})


def test_tags_are_what_tells_devices_apart():
    (spec,) = specs(
        {
            "physical_network": "physnet1",
            "trusted": "yes",
            "managed": "no",
            "live_migratable": True,
            "remote_managed": True,
            "resource_class": "x",
            "traits": "y",
            "one_time_use": True,
        }
    )
    assert spec.tags == {
        "physical_network": "physnet1",
        "trusted": "true",
        "managed": "false",
        "live_migratable": "true",
    }


def test_objects_and_lists_of_objects_have_places():
    assert [spec.place for spec in specs({}, [{}, {}], [], {})] == ["#1", "#2.1", "#2.2", "#4"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", '#1 = "": no JSON: Expecting value at character 1'),
        ('{"a": ', '#1 = "{\\"a\\": ": no JSON: Expecting value at character 7'),
        ("3", "#1 = 3: not an object, or a list of objects"),
        ('"x"', '#1 = "x": not an object, or a list of objects'),
        ("null", "#1 = null: not an object, or a list of objects"),
        ("[[]]", "#1.1 = []: not an object, or a list of objects"),
        ("1" * 5000, f'#1 = "{"1" * 59}...: it cannot be read'),
        ("[" * 100_000, f'#1 = "{"[" * 59}...: it cannot be read'),
        ('{"managed": "yes", "managed": "no"}', "#1: managed is there twice"),
        ('{"address": {"bus": "1", "bus": "2"}}', "#1: bus is there twice"),
    ],
)
def test_text_that_is_no_object(text, told):
    _, found = device_specs([text], report=False)
    assert [one.message.removeprefix("[pci] device_spec ") for one in found] == [told]


def test_all_errors_of_all_values_in_their_order_with_places_keys_and_remedies():
    _, found = parsed(
        {"adress": "x", "vendor_id": 8086},
        [{"product_id": "10000"}, 3],
        {"address": "81", "devname": "eth0"},
        report=False,
    )
    assert [(one.data["place"], one.data.get("key")) for one in found] == [
        ("#1", "adress"),
        ("#1", "vendor_id"),
        ("#2.1", "product_id"),
        ("#2.2", None),
        ("#3", "address"),
        ("#3", "devname"),
    ]
    assert found[0].remedy == "did you mean address?"
    assert all(one.message.startswith(f"[pci] device_spec {one.data['place']}") for one in found)


def test_unknown_key_that_resembles_none_is_told_all_known_ones():
    _, (error,) = parsed({"colour": "red"})
    assert error.remedy == f"known: {', '.join(sorted(KEYS))}"


def test_interface_and_address_exclude_each_other():
    assert errors({"devname": "eth0", "address": "*:*:*.*"}, report=False) == [
        "#1: devname is given together with address"
    ]


@pytest.mark.parametrize("key", ["devname", "physical_network", "resource_class"])
@pytest.mark.parametrize("wrong", [3, True, [], {}, "  "])
def test_text_that_is_none(key, wrong):
    assert errors({key: wrong}, report=False) == [f"#1: {key} = {json.dumps(wrong)}"]


@pytest.mark.parametrize("wrong", [3, True, ["0000:81:00.0"]])
def test_address_that_is_neither_text_nor_object(wrong):
    assert errors({"address": wrong}) == [f"#1: address = {json.dumps(wrong)}"]


def test_expressions_that_cannot_be_used():
    value = {"bus": "(", "slot": 3, "slots": "1"}
    assert errors({"address": value}) == [
        (
            f'#1: address.bus = "(" in {json.dumps(value)}: missing ), unterminated subpattern at '
            "position 0"
        ),
        f"#1: address.slot = 3 in {json.dumps(value)}",
        f"#1: address.slots is an unknown key in {json.dumps(value)}",
    ]
    assert parsed({"address": value})[1][2].remedy == "did you mean slot?"


def test_traits_that_cannot_be_used():
    assert errors({"traits": "CUSTOM_bad-char, fine"}) == [
        (
            '#1: traits = "CUSTOM_bad-char, fine": CUSTOM_BAD-CHAR has other characters than A-Z, '
            "0-9 "
            "and _"
        )
    ]
    assert errors({"traits": ["a"]}) == ['#1: traits = ["a"]']


def test_class_that_is_too_long():
    (error,) = errors({"resource_class": "x" * 300})
    assert error.endswith("... has 307 characters, more than 255")
    (spec,) = specs({"resource_class": "x" * 248})
    assert len(spec.resource_class) == 255


def test_control_characters_are_escaped():
    (error,) = errors({"a\nb\x1b[1m": 1})
    assert error == "#1: a\\nb\\x1b[1m is an unknown key"


@example([{"address": "\x1b"}], False)
@example([{"address": {"bus": "\\\x1b"}}], False)
@given(st.lists(JSON, max_size=3), st.booleans())
def test_no_json_crashes(values: list[Any], report: bool):
    found, wrong = device_specs([json.dumps(value) for value in values], report=report)
    assert all(one.remedy and printable(one.message) == one.message for one in wrong)
    assert found or wrong or not any(isinstance(value, dict) for value in values)


@given(st.lists(st.text(max_size=40), max_size=3))
def test_no_text_crashes(values: list[str]):
    _, wrong = device_specs(values, report=False)
    assert all(one.remedy and printable(one.message) == one.message for one in wrong)
