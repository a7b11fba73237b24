"""The validator that names the faults of a document: JSON Schema 2020-12, with the patterns of
ECMA 262. Loaded at the first invalid document only, because it takes 3 MiB.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012


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


_Validator: Any = extend(Draft202012Validator, {"pattern": _pattern, "uniqueItems": _unique_items})
_BASE = "urn:compute-node-agent:document"


def validator_for(schema: Mapping[str, Any], document: Mapping[str, Any]) -> Any:
    """Return a validator of ``schema``, whose references lead into ``document``."""
    resource: Resource[Any] = DRAFT202012.create_resource(document)
    registry: Registry[Any] = Registry().with_resource(_BASE, resource)
    return _Validator(_absolute(schema), registry=registry)


def _absolute(schema: Any) -> Any:
    """Return ``schema`` with every reference into the document made absolute."""
    if isinstance(schema, Mapping):
        return {
            key: f"{_BASE}{value}"
            if key == "$ref" and isinstance(value, str) and value.startswith("#")
            else _absolute(value)
            for key, value in schema.items()
        }
    return [_absolute(item) for item in schema] if isinstance(schema, list) else schema
