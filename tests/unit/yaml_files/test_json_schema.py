"""The generated code accepts of each file what the validator finds valid, and nothing else."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from agent.provider_config.reading import SCHEMA as PROVIDER_FILE
from agent.yaml_files.json_schema import GeneratedCheck, JsonSchema, NotGenerated
from agent.yaml_files.parsing import parse
from drivers.fake.file import HOST_FILE
from tests.support.altered import ODD, altered
from tests.support.child import CHECKOUT

PROVIDERS = JsonSchema(PROVIDER_FILE.content, PROVIDER_FILE.content)
PROVIDER = """
meta: {schema_version: '1.0'}
providers:
- identification: {uuid: $COMPUTE_NODE}
  inventories: {additional: [{CUSTOM_LICENSE: {total: 20, allocation_ratio: 1.5, reserved: 0}}]}
  traits: {additional: [CUSTOM_RACK_7]}
- identification: {name: one}
"""


def documents() -> Iterator[tuple[str, JsonSchema, Any]]:
    yield "providers", PROVIDERS, yaml.safe_load(PROVIDER)
    for file in sorted((CHECKOUT / "etc" / "hosts").glob("*.yaml")):
        yield (
            file.name,
            JsonSchema(HOST_FILE.content, HOST_FILE.content),
            parse(file.read_bytes(), file.name).data,
        )


@pytest.mark.parametrize(
    ("schema", "document"), [pytest.param(*case, id=name) for name, *case in documents()]
)
def test_the_code_accepts_what_the_validator_finds_valid(schema, document):
    assert schema.accepts(document)
    refused = 0
    for one in altered(document):
        valid = schema._validator.is_valid(one)
        assert schema.accepts(one) == valid, one
        refused += not valid
    assert refused > len(ODD)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1.0, -0.0, True, b"x", {1: 2}])
def test_the_code_takes_values_that_only_yaml_has_as_the_validator_does(value):
    for document in altered(yaml.safe_load(PROVIDER)):
        replaced = _replaced(document, value)
        assert PROVIDERS.accepts(replaced) == PROVIDERS._validator.is_valid(replaced)


def _replaced(document: Any, value: Any) -> Any:
    """The document with ``value`` in place of every number."""
    if isinstance(document, dict):
        return {key: _replaced(part, value) for key, part in document.items()}
    if isinstance(document, list):
        return [_replaced(part, value) for part in document]
    return value if isinstance(document, int | float) else document


def test_a_schema_may_refer_to_itself():
    document = {
        "$defs": {
            "tree": {
                "properties": {"below": {"items": {"$ref": "#/$defs/tree"}}},
                "not": {"enum": [1]},
            }
        }
    }
    check = GeneratedCheck({"$ref": "#/$defs/tree"}, document)
    assert check.accepts({"below": [{"below": []}]})
    assert not check.accepts({"below": [{"below": [1]}]})


def test_what_stands_beside_a_reference_counts():
    document = {"$defs": {"text": {"type": "string"}}}
    check = GeneratedCheck({"$ref": "#/$defs/text", "maxLength": 1}, document)
    assert check.accepts("a")
    assert not check.accepts("ab")
    assert not check.accepts(1)


def test_names_that_differ_by_a_slash_only_are_two():
    document = {"a": {"b/c": {"type": "string"}, "b": {"c": {"type": "integer"}}}}
    schema = {"properties": {"x": {"$ref": "#/a/b~1c"}, "y": {"$ref": "#/a/b/c"}}}
    for one in (JsonSchema(schema, document), GeneratedCheck(schema, document)):
        assert one.accepts({"x": "text", "y": 1})
        assert not one.accepts({"x": 1})
        assert not one.accepts({"y": "text"})


@pytest.mark.parametrize(
    ("schema", "wrong"),
    [
        ({"prefixItems": [{"type": "integer"}]}, ["text"]),
        ({"allOf": [{"type": "integer"}], "not": {"$ref": "#/allOf/0"}}, 1),
        (
            {"$id": "urn:own", "$defs": {"a": {"$anchor": "a", "type": "integer"}}, "$ref": "#a"},
            "x",
        ),
    ],
)
def test_a_schema_without_code_is_left_to_the_validator(schema, wrong):
    checked = JsonSchema(schema, schema)
    assert checked._check is None
    assert list(checked.errors(wrong))


def test_no_code_is_generated_where_a_keyword_has_another_meaning():
    with pytest.raises(NotGenerated, match="prefixItems"):
        GeneratedCheck({"prefixItems": [{}]}, {})
