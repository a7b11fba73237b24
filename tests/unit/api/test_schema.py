"""Schemas name every fault, where it is, in few words."""

from collections.abc import Mapping
from typing import Any

import pytest

from agent.api.description import RequestSchema, load, pointer
from tests.support.altered import ODD, altered
from tests.support.site import flavor_body, instance_body
from tests.support.tracking import F1, uuid_of

DOCUMENT = {
    "components": {
        "schemas": {
            "Name": {"type": "string", "pattern": "^[a-z]+$"},
            "Pair": {"type": "object", "properties": {"a": {"$ref": "#/components/schemas/Name"}}},
        }
    }
}


def faults(schema, instance):
    return list(RequestSchema(schema, DOCUMENT).faults(instance))


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


# --- the generated code beside the validator ------------------------------------------------------

BODIES: Mapping[tuple[str, str], Any] = {
    ("/v1/claims", "POST"): {
        "id": uuid_of("claim"),
        "node": uuid_of("node"),
        "instance": instance_body("i1", image_properties={"hw_a": "b"}, volume_backed=True),
        "flavor": flavor_body(F1),
        "limits": {
            "memory_mb": 4096,
            "numa": {"cpu_allocation_ratio": 1, "ram_allocation_ratio": 2},
        },
        "allocations": {uuid_of("node"): {"resources": {"VCPU": 1}}},
        "devices": [{"id": uuid_of("gpu"), "count": 1, "spec": {"kind": "gpu"}}],
        "networks": {"physnets": ["a", "b"], "tunneled": True},
    },
    ("/v1/moves", "POST"): {
        "id": uuid_of("move"),
        "node": uuid_of("node"),
        "type": "resize",
        "instance": instance_body("i1"),
        "flavor": flavor_body(F1),
        "migration": {"uuid": uuid_of("migration")},
    },
    ("/v1/devices/claims", "POST"): {
        "id": uuid_of("claim"),
        "node": uuid_of("node"),
        "instance": uuid_of("i1"),
        "devices": [{"id": uuid_of("gpu"), "count": 1, "spec": {"kind": "gpu"}}],
    },
    ("/v1/instances/{uuid}", "PATCH"): {"vm_state": "active", "task_state": None},
    ("/v1/audits", "POST"): {"nodes": ["a"], "dry_run": True},
}


def test_for_every_operation_there_is_code() -> None:
    for operation in load().operations.values():
        parts = (operation.path.schema, operation.query.schema, operation.header.schema)
        for schema in (*parts, *([operation.body] if operation.body is not None else [])):
            assert schema._check is not None, operation.id


@pytest.mark.parametrize("operation", BODIES, ids=" ".join)
def test_the_code_accepts_what_the_validator_finds_valid(operation: tuple[str, str]) -> None:
    schema = load().operations[operation].body
    assert schema is not None
    assert schema.accepts(BODIES[operation])
    refused = 0
    for document in altered(BODIES[operation]):
        valid = schema._validator.is_valid(document)
        assert schema.accepts(document) == valid, document
        refused += not valid
    assert refused > len(ODD)


def test_a_keyword_that_the_code_does_not_know_leaves_the_schema_to_the_validator() -> None:
    schema = {"properties": {"a": {}}, "unevaluatedProperties": False}
    assert faults(schema, {"a": 1}) == []
    assert len(faults(schema, {"b": 1})) == 1
