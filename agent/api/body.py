"""A request's body: one JSON document, read more strictly than Python does."""

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from agent.api.errors import NotJson, TooManyValues
from agent.model.names import printable

# However small, more of them than any request needs are time and memory that others lack.
MOST_VALUES = 20_000

_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


def decoded(body: bytes) -> Any:
    """The document.

    :raises TooManyValues: it has more than :data:`MOST_VALUES`.
    :raises NotJson: it is none, or says something twice, or has what no record can hold.
    """
    # Before it is read, because a document takes up to fifty times the memory of its text.
    if (
        _signs(body) >= MOST_VALUES
        and _signs(body) - sum(_signs(text[0]) for text in _TEXT.finditer(body)) >= MOST_VALUES
    ):
        raise TooManyValues(f"the body has more than {MOST_VALUES} values", "send less at once")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotJson(
            f"the body is not text in UTF-8, at byte {error.start}", "send JSON in UTF-8"
        ) from error
    try:
        document = json.loads(
            text, object_pairs_hook=_object, parse_float=_number, parse_constant=_constant
        )
        if "\\u" in text:
            # Half a character is valid JSON, and nothing that could be stored or sent on.
            json.dumps(document, ensure_ascii=False).encode()
    except RecursionError as error:
        raise NotJson(
            "the body is nested too deeply", "send a JSON document as the API describes it"
        ) from error
    except ValueError as error:
        raise NotJson(
            f"the body is no JSON document: {printable(str(error))[:200]}",
            "send a JSON document as the API describes it",
        ) from error
    return document


def _signs(part: bytes) -> int:
    """How many signs there are that come before a value; those in texts are none."""
    return sum(part.count(sign) for sign in (b",", b"[", b"{"))


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"{twice!r} stands there twice")
    return found


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is out of range")
    # 4.0 is an integer to JSON Schema, so it is to be one to everybody else.
    return int(value) if value.is_integer() else value


def _constant(text: str) -> float:
    raise ValueError(f"{text} is no number")
