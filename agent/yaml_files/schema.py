"""Checking a document against a JSON Schema 2020-12 with the patterns of ECMA 262, with errors in
words for people.

The ``description`` of a part of the schema says what to write there; the remedy quotes it.
"""

import difflib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from agent.errors import ConfigError
from agent.yaml_files.parsing import Document, Where, shown


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    # In ECMA 262 $ matches the end only; in Python it also matches before a final newline.
    return re.compile(re.sub(r"(?<!\\)\$$", r"\\Z", pattern))


def _pattern(
    _validator: Any, pattern: str, instance: Any, _schema: Any
) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _compile(pattern).search(instance):
        yield ValidationError(f"does not match {pattern}")


def _unique_items(
    _validator: Any, unique: bool, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    # By a set, because there may be thousands of items; a list above maxItems is an error anyway.
    if (
        unique
        and isinstance(instance, list)
        and len(instance) <= schema.get("maxItems", len(instance))
    ):
        seen: set[str] = set()
        for element in instance:
            text = json.dumps(element, sort_keys=True)
            if text in seen:
                yield ValidationError("has something twice")
                return
            seen.add(text)


Validator: Any = extend(Draft202012Validator, {"pattern": _pattern, "uniqueItems": _unique_items})


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

    @cached_property
    def _validator(self) -> Any:
        return Validator(self.content)

    def errors(self, document: Document) -> dict[Where, list[ConfigError]]:
        """Return all errors of the document's structure, by the path of the wrong value."""
        errors: dict[Where, list[ConfigError]] = {}
        for found in self._validator.iter_errors(document.data):
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
