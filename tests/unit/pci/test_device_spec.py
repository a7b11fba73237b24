"""The grammar of ``[pci] device_spec``: every key, and everything that is wrong at once."""

import json
import re
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.model.devices import PciAddress
from agent.model.names import printable
from agent.pci.device_spec import (
    KEYS,
    MAXIMA,
    PARTS,
    Glob,
    Regex,
    device_specs,
    expression,
    glob,
    written,
)
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


# --- globs and expressions for PCI addresses, against the table of the grammar and against a plain reading of it ---


ADDRESSES = st.builds(
    PciAddress,
    st.sampled_from([0, 1, 0xA, 0xFFFF, 0x10000, 0xFFFFFFFF]) | st.integers(0, 0xFFFFFFFF),
    st.integers(0, 0xFF),
    st.integers(0, 0x1F),
    st.integers(0, 7),
)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("*:0a:00.*", (None, 0x0A, 0, None)),
        (":0a:00.", (None, 0x0A, 0, None)),
        ("0a:00", (None, 0x0A, 0, None)),
        ("00.1", (None, None, 0, 1)),
        (".2", (None, None, None, 2)),
        ("0000:81:00.0", (0, 0x81, 0, 0)),
        ("0000:AF:1F.7", (0, 0xAF, 0x1F, 7)),
        ("10000:01:00.0", (0x10000, 1, 0, 0)),
        ("ffffffff:ff:1f.7", (0xFFFFFFFF, 0xFF, 0x1F, 7)),
        ("*:*:*.*", (None, None, None, None)),
        ("", (None, None, None, None)),
        (" 0000 : 81 : 00 . 0 ", (0, 0x81, 0, 0)),
        ("1", (None, None, 1, None)),
    ],
)
def test_globs(text, parts):
    assert glob(text) == Glob(*parts)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("81", "slot 81 is above 1f"),
        ("1:2:3:4.0", "4 parts before the function"),
        ("100:00.0", "bus 100 is above ff"),
        ("0000:00:20.8", "slot 20 is above 1f; function 8 is above 7"),
        ("100000000:00:00.0", "domain 100000000 is above ffffffff"),
        ("0*:00:00.0", "domain 0* is neither hex digits nor *"),
        ("0000:[ab]:00.0", "bus [ab] is neither hex digits nor *"),
        ("0000:00:00.1.2", "function 1.2 is neither hex digits nor *"),
        ("0x0:00:00.0", "domain 0x0 is neither hex digits nor *"),
        ("0000:00:00.-1", "function -1 is neither hex digits nor *"),
        ("0000:00:00.٣", "function ٣ is neither hex digits nor *"),
    ],
)
def test_globs_that_are_none(text, why):
    with pytest.raises(ValueError, match=f"^{re.escape(why)}$"):
        glob(text)


@pytest.mark.parametrize("text", ["0000:81:00.0", "10000:ff:1f.7"])
def test_glob_for_a_single_address(text):
    assert glob(text).single == PciAddress.parse(text)


@pytest.mark.parametrize(
    "text", ["81:00.0", "0000:81:00", "*:81:00.0", "0000:*:00.0", "0000:81:.0"]
)
def test_glob_for_several_addresses(text):
    assert glob(text).single is None


@given(ADDRESSES, st.lists(st.booleans(), min_size=4, max_size=4), ADDRESSES)
def test_globs_match_as_the_shell_would(meant: PciAddress, stars: list[bool], device: PciAddress):
    parts = [
        "*" if star else part for star, part in zip(stars, written(meant).values(), strict=True)
    ]
    text = "{}:{}:{}.{}".format(*parts)
    assert glob(text).matches(device) == fnmatchcase(str(device), text)
    assert glob(text.upper()).matches(meant)


@given(st.text(alphabet="0123456789abcdefABCDEF:.* xg", max_size=20))
def test_every_text_is_a_glob_within_the_maxima_or_an_error(text: str):
    try:
        found = glob(text)
    except ValueError as error:
        assert str(error)
    else:
        assert all(
            getattr(found, name) is None or 0 <= getattr(found, name) <= MAXIMA[name]
            for name in PARTS
        )


@pytest.mark.parametrize(
    ("parts", "fits"),
    [
        ({}, True),
        ({"bus": "0a"}, True),
        ({"bus": "0"}, False),
        ({"bus": "0."}, True),
        ({"bus": "0A"}, True),
        ({"bus": "a"}, False),
        ({"domain": "0000", "slot": "1[0-9a-f]", "function": "[0-3]"}, True),
        ({"domain": "0000", "slot": "1[0-9a-f]", "function": "[4-7]"}, False),
        ({"function": "2|3"}, True),
        ({"domain": "0"}, False),
        ({"domain": "^0000$"}, True),
    ],
)
def test_expressions_match_a_whole_part_in_any_case(parts, fits):
    pattern = Regex(tuple((name, expression(text)) for name, text in parts.items()))
    assert pattern.matches(PciAddress.parse("0000:0a:1f.3")) is fits
    assert pattern.single is None


@pytest.mark.parametrize("text", ["(", "[z-a]", "*", "a{99999999999}", "(?P<a>.)(?P<a>.)"])
def test_expressions_that_are_none(text):
    with pytest.raises(ValueError, match=r".+"):
        expression(text)


PIECES = st.lists(
    st.sampled_from(["0", "[0-9]", "a", "[A-F]", ".", ".*", "(0|1)", "f?"]), min_size=1, max_size=5
).map("".join)


@given(ADDRESSES, st.dictionaries(st.sampled_from(PARTS), PIECES, max_size=4))
def test_expressions_match_as_the_whole_address_would(device: PciAddress, texts: dict[str, str]):
    whole = "{}:{}:{}[.]{}".format(
        *(f"(?:{texts[name]})" if name in texts else "[0-9a-f]*" for name in PARTS)
    )
    pattern = Regex(tuple((name, expression(text)) for name, text in texts.items()))
    separate = {
        name: re.fullmatch(texts.get(name, ".*"), part, re.IGNORECASE)
        for name, part in written(device).items()
    }
    assert pattern.matches(device) == all(separate.values())
    # A dot in one part may swallow the marks between parts, so that the whole says at least as
    # much.
    assert not pattern.matches(device) or re.fullmatch(whole, str(device), re.IGNORECASE)
