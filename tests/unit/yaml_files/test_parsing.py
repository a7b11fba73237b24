"""YAML to data with places; aliases and merges where they are allowed."""

import pytest

from agent.errors import ConfigErrors
from agent.yaml_files import MAX_DEPTH, TextPosition, parse


def parsed(text, **options):
    return parse(text.encode(), "f", **options)


def refused(text, **options):
    with pytest.raises(ConfigErrors) as caught:
        parsed(text, **options)
    return [str(error) for error in caught.value.errors]


def errors(text, **options):
    return [str(error) for error in parsed(text, **options).errors]


def test_scalars_mean_what_they_look_like():
    text = (
        "[null, ~, '', true, false, 0, -7, 1.5, .5, 2., 1.0e3, yes, 010, 0x1F, 1_000, "
        "0000:01:00.0, 2024-01-01, 1.0e, ., -, '5', 12345678901234567890]"
    )
    assert parsed(text).data == [
        None,
        None,
        "",
        True,
        False,
        0,
        -7,
        1.5,
        0.5,
        2.0,
        1000.0,
        "yes",
        "010",
        "0x1F",
        "1_000",
        "0000:01:00.0",
        "2024-01-01",
        "1.0e",
        ".",
        "-",
        "5",
        "12345678901234567890",
    ]


def test_every_key_and_item_has_its_place():
    document = parsed("a:\n  - b: 1\n  -   c\nd: {e: 2}")
    assert document.places == {
        (): TextPosition(1, 1),
        ("a",): TextPosition(1, 1),
        ("a", 0): TextPosition(2, 5),
        ("a", 0, "b"): TextPosition(2, 5),
        ("a", 1): TextPosition(3, 7),
        ("d",): TextPosition(4, 1),
        ("d", "e"): TextPosition(4, 5),
    }
    assert document.place(("a", 0, "missing", 3)) == TextPosition(2, 5)
    assert str(document.error(("d", "f"), "lacks\nit", "add")) == "f:4:1: d.f: lacks\\nit (add)"


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"a: \xff", "1:4"),
        (b"a: 1\nb:\xff", "2:3"),
        ("ä: ".encode() + b"\xff", "1:4"),
        (b"\xef\xbb\xbf\xff", "1:1"),
    ],
)
def test_bytes_that_are_no_text_are_told_with_their_place(content, place):
    with pytest.raises(ConfigErrors) as caught:
        parse(content, "f")
    assert str(caught.value.errors[0]) == f"f:{place}: is not UTF-8 (save the file as UTF-8)"


def test_a_byte_order_mark_is_no_content():
    assert parse(b"\xef\xbb\xbfa: 1", "f").data == {"a": 1}


def test_aliases_are_refused_unless_allowed():
    assert refused("a: &x 1\nb: *x") == [
        "f:2:4: aliases are not allowed here: write the value out (correct the YAML)"
    ]
    assert parsed("a: &x [1]\nb: *x", aliases=True).data == {"a": [1], "b": [1]}


def test_an_alias_has_the_place_of_what_it_stands_for():
    document = parsed("a: &x {b: 1}\nc: *x", aliases=True)
    assert (document.place(("c",)), document.place(("c", "b"))) == (
        TextPosition(2, 1),
        TextPosition(1, 8),
    )


def test_a_merge_gives_what_is_not_written_and_the_first_of_many_goes_before():
    text = "x: &x {a: 1, b: 1}\ny: &y {<<: *x, b: 2, c: 2}\nz: {c: 3, <<: [*y, *x]}\n'<<': text"
    data = parsed(text, aliases=True).data
    assert (data["y"], data["z"]) == ({"b": 2, "c": 2, "a": 1}, {"c": 3, "b": 2, "a": 1})
    assert data["<<"] == "text", "in quotes it is a key"


@pytest.mark.parametrize("source", ["5", "[5]", "[{a: 1}, 5]", "null"])
def test_a_merge_of_what_is_no_mapping_is_an_error(source):
    assert errors(f"x: {{<<: {source}}}", aliases=True) == [
        "f:1:5: x: << merges what is no mapping (name the anchor of a mapping)"
    ]


def test_an_alias_within_itself_is_refused():
    for text in ("&a [*a]", "&a {b: *a}", "&a {<<: *a}", "x: &a {<<: [*a]}"):
        (error,) = refused(text, aliases=True)
        assert f"is nested deeper than {MAX_DEPTH} levels" in error


def test_a_small_file_does_not_become_a_large_document():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"] + [
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)
    ]
    (error,) = refused("\n".join(lines), aliases=True)
    assert "has more than 200000 values (use fewer aliases, or none)" in error


def test_merges_do_not_grow_without_an_end_either():
    lines = ["a0: &a0 {x: 1}"] + [
        f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 9)
    ]
    (error,) = refused("\n".join(lines), aliases=True)
    assert "has more than 200000 values" in error


def test_an_alias_without_an_anchor_is_told():
    assert refused("a: *x", aliases=True) == ["f:1:4: found undefined alias 'x' (correct the YAML)"]


def test_a_nest_that_is_too_deep_is_refused_before_it_is_read():
    (error,) = refused("[" * 100_000)
    assert (
        error == f"f:1:{MAX_DEPTH + 1}: is nested deeper than {MAX_DEPTH} levels (correct the YAML)"
    )
