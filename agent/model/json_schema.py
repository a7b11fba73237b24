"""JSON Schema 2020-12 validator with the patterns of ECMA 262."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend


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
