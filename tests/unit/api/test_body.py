"""Bodies are read as JSON, and more strictly than Python's own reading of it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.api.body import decode
from agent.api.problem import NotJson, TooManyValues

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
)


@given(VALUES)
def test_every_document_is_read_as_it_is_meant(value):
    assert decode(json.dumps(value).encode()) == value


@pytest.mark.parametrize(("text", "number"), [("4.0", 4), ("4e2", 400), ("-0.0", 0), ("0.5", 0.5)])
def test_whole_numbers_are_integers_however_they_are_written(text, number):
    found = decode(text.encode())
    assert (found, type(found)) == (number, type(number))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"{}x", "no JSON"),
        (b"{'a': 1}", "no JSON"),
        (b"\xff", "UTF-8, at byte 0"),
        (b"NaN", "NaN is no number"),
        (b"-Infinity", "is no number"),
        (b"1e400", "out of range"),
        (b'{"a": {"b": 1, "b": 1}}', "'b' stands there twice"),
        (b'"\\udc00"', "surrogates"),
        (b'{"\\ud800": 1}', "surrogates"),
        (b"[" * 10_000, "nested too deeply"),
        (b"1" * 5000, "no JSON"),
        (b"\xef\xbb\xbf{}", "no JSON"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_none_says_why(body, reason):
    with pytest.raises(NotJson, match=reason) as found:
        decode(body)
    assert len(found.value.message) < 300


@pytest.mark.parametrize(
    "body",
    [b"[" + b"{}," * 20_000 + b"{}]", b"[" + b"1," * 30_000 + b"1]", b"[" * 30_000],
    ids=["objects", "numbers", "depth"],
)
def test_more_values_than_any_request_has_are_not_read(body):
    with pytest.raises(TooManyValues):
        decode(body)


def test_signs_in_texts_are_no_values():
    text = '[{,"\\' * 30_000
    assert decode(json.dumps({"a": text}).encode()) == {"a": text}


def test_a_name_that_stands_there_twice_is_found_among_thousands():
    names = ",".join(f'"{number}": 1' for number in range(19_000))
    with pytest.raises(NotJson, match="'17' stands there twice"):
        decode(f'{{{names}, "17": 2}}'.encode())
