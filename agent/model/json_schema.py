"""JSON Schema 2020-12 with patterns as ECMA 262 means them."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    # There $ is the end and nothing else: Python's would let a newline follow.
    return re.compile(re.sub(r"(?<!\\)\$$", r"\\Z", pattern))


def _pattern(
    _validator: Any, pattern: str, instance: Any, _schema: Any
) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _compiled(pattern).search(instance):
        yield ValidationError(f"does not match {pattern}")


def _unique_items(
    _validator: Any, unique: bool, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    # Not compared each with each, because there may be thousands; of too many is told anyway.
    if (
        unique
        and isinstance(instance, list)
        and len(instance) <= schema.get("maxItems", len(instance))
    ):
        seen: set[str] = set()
        for one in instance:
            text = json.dumps(one, sort_keys=True)
            if text in seen:
                yield ValidationError("has something twice")
                return
            seen.add(text)


Validator: Any = extend(Draft202012Validator, {"pattern": _pattern, "uniqueItems": _unique_items})
