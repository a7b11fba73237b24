"""Checking a document against a JSON schema 2020-12.

Code generated from the schema tells quickly whether the document is valid. What is wrong with an
invalid one, only jsonschema can tell: it takes twenty times as long, and 3 MiB of memory once it is
loaded.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import fastjsonschema
from fastjsonschema import JsonSchemaException

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

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
    """No code can be generated for a schema: a keyword has another meaning there, or a reference
    leads out of the document.
    """


class JsonSchema:
    """A JSON schema, whose references lead into ``document``."""

    def __init__(self, schema: Mapping[str, Any], document: Mapping[str, Any]) -> None:
        self._schema, self._document = schema, document

    def errors(self, instance: Any) -> Iterator["ValidationError"]:
        """Yield what is wrong with ``instance``, as jsonschema tells it."""
        if not self.accepts(instance):
            yield from self._validator.iter_errors(instance)

    def accepts(self, instance: Any) -> bool:
        """Return whether ``instance`` is valid by the generated code. If it is not, or there is no
        code, only the validator can tell.
        """
        return self._check is not None and self._check.accepts(instance)

    @cached_property
    def _check(self) -> "GeneratedCheck | None":
        """None where the code would know less than the validator. Generated at the first use,
        because most schemas are not used.
        """
        try:
            return GeneratedCheck(self._schema, self._document)
        except NotGenerated:
            return None

    @cached_property
    def _validator(self) -> Any:
        # Imported here, because it is large, and a valid document does not need it.
        from agent.yaml_files.validator import validator_for

        return validator_for(self._schema, self._document)


class GeneratedCheck:
    """The generated code of ``schema``, whose references lead into ``document``.

    :raises NotGenerated: the generated code does not understand all of the schema.
    """

    def __init__(self, schema: Mapping[str, Any], document: Mapping[str, Any]) -> None:
        self._document = document
        # The number of each reference, and what it leads to, by its number.
        self._numbers: dict[str, str] = {}
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
        if reference not in self._numbers:
            # Before the translation, because a schema may refer to itself.
            number = self._numbers[reference] = str(len(self._numbers))
            try:
                found = find_reference(self._document, reference)
            except LookupError as error:
                raise NotGenerated(reference) from error
            self._definitions[number] = self._translate(found)
        return self._numbers[reference]


def find_reference(document: Mapping[str, Any], reference: str) -> Any:
    """Return the part of ``document`` that a reference into it, such as ``#/$defs/name``, leads
    to.

    :raises LookupError: there is no such part.
    """
    found: Any = document
    for part in reference.removeprefix("#/").split("/"):
        if not isinstance(found, Mapping):
            raise LookupError(reference)
        found = found[part.replace("~1", "/").replace("~0", "~")]
    return found
