"""Checking a document against a JSON schema, with errors in words for people.

The ``description`` of a part of the schema says what to write there; the remedy quotes it.
"""

import difflib
import json
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator, ValidationError

from agent.errors import ConfigError
from agent.yaml_files.parsing import Document, Where, shown

TYPES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "null",
}


class DocumentSchema:
    """The schema in the file ``name`` of a package; remedies refer to the file ``example``."""

    def __init__(self, package: str, name: str, example: str) -> None:
        self._package, self._name, self._example = package, name, example

    @cached_property
    def content(self) -> Mapping[str, Any]:
        """The schema itself."""
        found: Mapping[str, Any] = json.loads(
            files(self._package).joinpath(self._name).read_text(encoding="utf-8")
        )
        return found

    def errors(self, document: Document) -> dict[Where, list[ConfigError]]:
        """Return all errors of the document's structure, by the path of the wrong value."""
        errors: dict[Where, list[ConfigError]] = {}
        for found in Draft202012Validator(self.content).iter_errors(document.data):
            for where, what, remedy in self._describe(found):
                errors.setdefault(where, []).append(document.error(where, what, remedy))
        return errors

    def _describe(self, error: ValidationError) -> Iterator[tuple[Where, str, str]]:
        where: Where = tuple(error.absolute_path)
        expected = error.schema.get("description", "") if isinstance(error.schema, dict) else ""
        remedy = (
            f"write {expected}" if expected else f"see the commented example in {self._example}"
        )
        match error.validator:
            case "additionalProperties":
                yield from _unknown_keys(error, where)
            case "required":
                # jsonschema reports each missing key separately; its message begins with the key's
                # repr.
                key = next(
                    name for name in error.validator_value if error.message.startswith(repr(name))
                )
                yield where, f"lacks {key}", f"add {key}"
            case "type":
                kinds = (
                    [error.validator_value]
                    if isinstance(error.validator_value, str)
                    else error.validator_value
                )
                yield (
                    where,
                    f"is {shown(error.instance)}, not {' or '.join(TYPES[kind] for kind in kinds)}",
                    remedy,
                )
            case "not":
                yield where, "is not allowed here", remedy
            case _ if "propertyNames" in error.absolute_schema_path:
                yield (*where, str(error.instance)), "cannot be a key here", remedy
            case "uniqueItems":
                yield where, "has an item twice", "keep one of them"
            case "minItems" | "minProperties":
                yield where, "is empty", remedy
            case "maxProperties":
                yield where, f"has {' and '.join(sorted(error.instance))}", remedy
            case _:
                yield where, f"is {shown(error.instance)}", remedy


def meant(key: str, known: Collection[str]) -> str:
    """Return a remedy for an unknown key: the most similar known key, or all known keys."""
    close = difflib.get_close_matches(key, sorted(known), 1)
    return f"did you mean {close[0]}?" if close else f"known here: {', '.join(sorted(known))}"


def _unknown_keys(error: ValidationError, where: Where) -> Iterator[tuple[Where, str, str]]:
    known = error.schema["properties"]
    for key in error.instance:
        if key not in known:
            yield (*where, key), "is an unknown key", meant(key, known)
