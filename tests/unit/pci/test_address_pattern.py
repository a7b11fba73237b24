"""Globs and expressions for PCI addresses, against the table of the grammar and against a plain
reading of it.
"""

import re
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.devices import PciAddress
from agent.pci.device_spec import MAXIMA, PARTS, Glob, Regex, expression, glob, written

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
