import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.names import (
    child_name,
    child_role,
    child_uuid,
    choose_nodes,
    custom_token,
    is_custom,
    is_token,
    is_unnamed,
    is_uuid,
    name_first,
    normal_uuid,
    number_of,
    printable,
)

ROOT = "5f9c2a34-7d1e-4a8b-9c46-000000000001"


@pytest.mark.parametrize(
    "spelling", [ROOT.upper(), ROOT.replace("-", ""), f"{{{ROOT}}}", f"urn:uuid:{ROOT}"]
)
def test_every_spelling_of_a_uuid_has_one_normal_form(spelling):
    assert is_uuid(spelling)
    assert normal_uuid(spelling) == ROOT


@pytest.mark.parametrize("text", ["", "node-a", ROOT[:-1], ROOT + "0", "g" * 32, None, 7])
def test_other_text_is_no_uuid(text):
    assert not is_uuid(text)


def test_what_is_no_uuid_has_no_normal_form():
    with pytest.raises(ValueError):
        normal_uuid("node-a")


def test_a_made_uuid_is_the_same_each_time_and_another_for_each_root_and_role():
    assert child_uuid(ROOT, "node-a_NUMA0") == str(uuid.uuid5(uuid.UUID(ROOT), "node-a_NUMA0"))
    assert child_uuid(ROOT, "node-a_NUMA0") == child_uuid(ROOT.upper(), "node-a_NUMA0")
    assert (
        len({child_uuid(ROOT, "a"), child_uuid(ROOT, "b"), child_uuid(child_uuid(ROOT, "a"), "a")})
        == 3
    )


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("node-a_NUMA0", "_NUMA0"),
        ("node-a-gpu", "-gpu"),
        ("node-a", "node-a"),
        ("node-abc_NUMA0", "node-abc_NUMA0"),
        ("node-a=x", "node-a=x"),
        ("card", "card"),
        ("_NUMA0", "=_NUMA0"),
        ("=x", "==x"),
    ],
)
def test_a_name_says_a_role_and_the_role_gives_the_name_again(name, role):
    assert child_role(name, "node-a") == role
    assert child_name(role, "node-a") == name


@pytest.mark.parametrize("name", ["CUSTOM_A", "CUSTOM__", "CUSTOM_0", "CUSTOM_" + "A" * 248])
def test_a_custom_name(name):
    assert is_custom(name)
    assert is_token(name)


@pytest.mark.parametrize(
    "name",
    [
        "CUSTOM_",
        "VCPU",
        "CUSTOM_a",
        "CUSTOM_A-B",
        "CUSTOM_A\n",
        "XCUSTOM_A",
        "CUSTOM_Ä",
        "CUSTOM_" + "A" * 249,
        "",
    ],
)
def test_no_custom_name(name):
    assert not is_custom(name)


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("VCPU", True),
        ("HW_CPU_X86_AVX2", True),
        ("vcpu", False),
        ("VCPU\n", False),
        ("", False),
        ("A" * 256, False),
    ],
)
def test_the_name_of_a_class_or_trait(name, valid):
    assert is_token(name) is valid


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("gpu-a100", "CUSTOM_GPU_A100"),
        ("rack 7/ä", "CUSTOM_RACK_7__"),
        ("A" * 300, "CUSTOM_" + "A" * 248),
    ],
)
def test_any_text_becomes_a_custom_name(text, token):
    assert custom_token(text) == token
    assert is_custom(token)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("node-a", "node-a"),
        ("größe 7/a&b#c", "größe 7/a&b#c"),
        ("a\nb\tc\x1b[31m", "a\\nb\\tc\\x1b[31m"),
        ("\x85\u2028\u202e", "\\x85\\u2028\\u202e"),
        ("\udcff", "\\udcff"),
    ],
)
def test_control_characters_are_escaped_and_other_text_is_left_alone(text, shown):
    assert printable(text) == shown


@given(st.text(alphabet=st.characters(exclude_categories=[])))
def test_printable_text_stays_on_its_line_and_can_be_encoded(text):
    shown = printable(text)
    assert len(shown.splitlines()) <= 1
    shown.encode("utf-8")
    assert printable(shown) == shown


def test_one_is_not_many():
    assert [number_of(count, "claim") for count in (0, 1, 2)] == ["0 claims", "1 claim", "2 claims"]


@pytest.mark.parametrize(
    ("separator", "text"),
    [(", ", "a, b and 3 more"), ("; ", "a; b; and 3 more"), (" ", "a b and 3 more")],
)
def test_of_many_names_the_first_are_named_and_the_others_counted(separator, text):
    assert name_first("abcde", 2, separator) == text
    assert name_first("abcde", 5, separator) == separator.join("abcde")
    assert name_first("", 2, separator) == ""


NODES = {ROOT: "compute-1", "other": "compute-2", "third": "bare"}


@pytest.mark.parametrize(
    ("wanted", "chosen", "unmatched"),
    [
        ((), ["compute-1", "compute-2", "bare"], []),
        (("compute-*",), ["compute-1", "compute-2"], []),
        (("bare", ROOT), ["compute-1", "bare"], []),
        (("nobody", "b?re", "x*"), ["bare"], ["nobody", "x*"]),
        (("Bare",), [], ["Bare"]),
    ],
)
def test_nodes_are_chosen_by_uuid_name_or_pattern(wanted, chosen, unmatched):
    found, missing = choose_nodes(NODES.items(), wanted, lambda node: node)
    assert ([name for _, name in found], missing) == (chosen, unmatched)


@pytest.mark.parametrize(
    ("host", "unnamed"),
    [
        *((name, True) for name in ("localhost", "LOCALHOST.", "localhost4.localdomain4")),
        *((name, True) for name in ("ip6-loopback", "(none)", "::1", "192.0.2.7")),
        *((name, False) for name in ("localhost-17", "node1", "ip-192-0-2-7", "7", "a:b")),
    ],
)
def test_localhost_and_addresses_are_no_names_of_one_host(host: str, *, unnamed: bool) -> None:
    assert is_unnamed(host) == unnamed
