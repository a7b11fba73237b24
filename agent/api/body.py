"""A request's body: one JSON document, read more strictly than Python does."""

import json
import math
from collections.abc import Sequence
from typing import Any

from agent.api.errors import NotJson
from agent.model.names import printable


def decoded(body: bytes) -> Any:
    """The document.

    :raises NotJson: it is none, or says something twice, or has what no record can hold.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotJson(f"the body is not text in UTF-8, at byte {error.start}", "send JSON in UTF-8") from error
    try:
        document = json.loads(text, object_pairs_hook=_object, parse_float=_number, parse_constant=_constant)
        # Half a character is valid JSON, and nothing that could be stored or sent on.
        json.dumps(document, ensure_ascii=False).encode()
    except RecursionError as error:
        raise NotJson("the body is nested too deeply", "send a JSON document as the API describes it") from error
    except ValueError as error:
        raise NotJson(f"the body is no JSON document: {printable(str(error))[:200]}", "send a JSON document as the API describes it") from error
    return document


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} stands there twice")
    return found


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is out of range")
    # 4.0 is an integer to JSON Schema, so it is to be one to everybody else.
    return int(value) if value.is_integer() else value


def _constant(text: str) -> float:
    raise ValueError(f"{text} is no number")
