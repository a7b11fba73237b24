"""Schemas name every fault, where it is, in few words."""

import pytest

from agent.api.description import RequestSchema, build_registry, pointer

DOCUMENT = {
    "components": {
        "schemas": {
            "Name": {"type": "string", "pattern": "^[a-z]+$"},
            "Pair": {"type": "object", "properties": {"a": {"$ref": "#/components/schemas/Name"}}},
        }
    }
}


def faults(schema, instance):
    return list(RequestSchema(schema, build_registry(DOCUMENT)).faults(instance))


def test_references_lead_into_the_document_and_on_from_there():
    assert faults({"$ref": "#/components/schemas/Pair"}, {"a": "x"}) == []
    assert [
        where
        for where, _ in faults(
            {"type": "array", "items": {"$ref": "#/components/schemas/Pair"}},
            [{"a": "X"}, {"a": 1}],
        )
    ] == ["/0/a", "/1/a"]


def test_the_end_of_a_pattern_is_the_end():
    assert faults({"pattern": "^a$"}, "a") == []
    assert faults({"pattern": "^a$"}, "a\n") == [("", "does not match ^a$")]
    assert faults({"pattern": r"^a\$"}, "a$b") == []


@pytest.mark.parametrize(
    ("path", "expected"), [([], ""), (["a", 0, "b"], "/a/0/b"), (["a/b", "c~d"], "/a~1b/c~0d")]
)
def test_pointers_are_those_of_rfc_6901(path, expected):
    assert pointer(path) == expected


def test_what_is_not_allowed_is_told_in_plain_words():
    assert faults({"properties": {"a": {"not": {}}}}, {"a": 1}) == [("/a", "is not allowed here")]
    assert faults({"enum": ["x", "y"]}, "z" * 1000) == [("", "is none of x, y")]


def test_a_long_value_is_cut_and_a_control_character_escaped():
    ((_, text),) = faults({"type": "integer"}, "\x1b" + "x" * 1000)
    assert len(text) == 200
    assert "\x1b" not in text


def test_true_is_no_integer():
    assert faults({"type": "integer"}, True) != []
