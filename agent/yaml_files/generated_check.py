"""Code generated from a JSON schema, which tells quickly whether a document is valid.

What is wrong with an invalid one, only jsonschema can tell: it takes twenty times as long, and 3
MiB of memory once it is loaded.
"""

from collections.abc import Callable, Mapping
from typing import Any

import fastjsonschema
from fastjsonschema import JsonSchemaException

DRAFT = "http://json-schema.org/draft-07/schema#"
"""What the generated code understands."""
# Keywords that mean the same in that draft as in draft 2020-12, by what their values are.
VALUES = frozenset(
    {"type", "enum", "required", "pattern", "minLength", "maxLength", "multipleOf", "uniqueItems"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
    | {"minItems", "maxItems", "minProperties", "maxProperties"}
)
SCHEMAS = frozenset(("items", "additionalProperties", "propertyNames", "not", "if", "then", "else"))
LISTS = frozenset(("allOf", "anyOf", "oneOf"))
# What changes nothing: keywords that the validator does not check either, and where references
# lead.
NOTES = frozenset(
    ("$schema", "$defs", "title", "description", "format", "default", "example", "examples")
)


class NotGenerated(Exception):
    """No code can be generated for a schema: a keyword has another meaning there."""


class GeneratedCheck:
    """The generated code of ``schema``, whose references lead into ``document``.

    :raises NotGenerated: the schema has a keyword that the generated code does not understand.
    """

    def __init__(self, schema: Mapping[str, Any], document: Mapping[str, Any]) -> None:
        self._document = document
        self._definitions: dict[str, Any] = {}
        understood = self._translate(schema)
        self._code: Callable[[Any], object] = fastjsonschema.compile(
            {**understood, "definitions": self._definitions, "$schema": DRAFT},
            use_default=False,
            detailed_exceptions=False,
        )

    def accepts(self, instance: Any) -> bool:
        """Return whether ``instance`` is valid."""
        try:
            self._code(instance)
        except JsonSchemaException:
            return False
        return True

    def _translate(self, schema: Any) -> Any:
        """Return ``schema`` in the older draft. What it refers to becomes a definition."""
        if not isinstance(schema, Mapping):
            return schema
        found: dict[str, Any] = {}
        for keyword, value in schema.items():
            if keyword in VALUES:
                found[keyword] = value
            elif keyword == "const":
                # For const no code is generated without detailed exceptions.
                found["enum"] = [value]
            elif keyword in SCHEMAS:
                found[keyword] = self._translate(value)
            elif keyword in LISTS:
                found[keyword] = [self._translate(part) for part in value]
            elif keyword == "properties":
                found[keyword] = {name: self._translate(part) for name, part in value.items()}
            elif keyword not in NOTES and keyword != "$ref":
                raise NotGenerated(keyword)
        if "$ref" not in schema:
            return found
        referred = {"$ref": f"#/definitions/{self._define(schema['$ref'])}"}
        # In that draft, whatever stands beside a reference is ignored.
        return {"allOf": [referred, found]} if found else referred

    def _define(self, reference: str) -> str:
        """Translate what the reference leads to. Return the definition's name."""
        name = reference.removeprefix("#/").replace("/", ".")
        if name not in self._definitions:
            # Before the translation, because a schema may refer to itself.
            self._definitions[name] = None
            self._definitions[name] = self._translate(find_reference(self._document, reference))
        return name


def find_reference(document: Mapping[str, Any], reference: str) -> Any:
    """Return the part of ``document`` that a reference into it, such as ``#/$defs/name``, leads
    to.
    """
    found: Any = document
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return found
