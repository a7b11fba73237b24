"""JSON Schema 2020-12 with patterns as ECMA 262 means them."""

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


def _pattern(_validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _compiled(pattern).search(instance):
        yield ValidationError(f"does not match {pattern}")


Validator: Any = extend(Draft202012Validator, {"pattern": _pattern})
