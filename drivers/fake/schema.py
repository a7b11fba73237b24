"""What the JSON Schema of a host file has to say about a document, in words for people.

The ``description`` of a part of the schema tells what to write there; it ends up in the remedy.
"""

import difflib
import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from agent.errors import ConfigError
from drivers.fake.document import Document, Where, shown

TYPES = {
    "string": "text", "integer": "a whole number", "number": "a number",
    "boolean": "true or false", "array": "a list", "object": "a mapping",
}  # fmt: skip


@cache
def _validator() -> Any:
    return Draft202012Validator(json.loads(files("drivers.fake").joinpath("host.schema.json").read_text(encoding="utf-8")))


def schema_errors(document: Document) -> dict[Where, list[ConfigError]]:
    """All errors of the document's structure, by the path of what is wrong."""
    errors: dict[Where, list[ConfigError]] = {}
    for found in _validator().iter_errors(document.data):
        for where, what, remedy in _told(found):
            errors.setdefault(where, []).append(document.error(where, what, remedy))
    return errors


def _told(error: ValidationError) -> Iterator[tuple[Where, str, str]]:
    where: Where = tuple(error.absolute_path)
    expected = error.schema.get("description", "") if isinstance(error.schema, dict) else ""
    remedy = f"write {expected}" if expected else "see the commented example in etc/hosts/numa.yaml"
    match error.validator:
        case "additionalProperties":
            yield from _unknown_keys(error, where)
        case "required":
            # One error for each missing key comes by itself; its message begins with the key's repr.
            key = next(name for name in error.validator_value if error.message.startswith(repr(name)))
            yield where, f"lacks {key}", f"add {key}"
        case "type":
            kinds = [error.validator_value] if isinstance(error.validator_value, str) else error.validator_value
            yield where, f"is {shown(error.instance)}, not {' or '.join(TYPES[kind] for kind in kinds)}", remedy
        case "not":
            yield where, "is not allowed here", "say it once, at the top of the file"
        case _ if "propertyNames" in error.absolute_schema_path:
            yield (*where, str(error.instance)), "cannot be a key here", remedy
        case "uniqueItems":
            yield where, "has an item twice", "keep one of them"
        case "minItems" | "minProperties":
            yield where, "is empty", remedy
        case _:
            yield where, f"is {shown(error.instance)}", remedy


def _unknown_keys(error: ValidationError, where: Where) -> Iterator[tuple[Where, str, str]]:
    known = sorted(error.schema["properties"])
    for key in error.instance:
        if key not in known:
            close = difflib.get_close_matches(key, known, 1)
            yield (*where, key), "is an unknown key", f"did you mean {close[0]}?" if close else f"known here: {', '.join(known)}"
