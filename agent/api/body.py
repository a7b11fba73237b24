"""Decoding of a request's body: one JSON document, with stricter rules than Python's."""

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from agent.api.problem import NotJson, TooManyValues
from agent.model.names import printable

# More values than any request needs cost time and memory, however small each of them is.
MOST_VALUES = 20_000

_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


def decode(body: bytes, what: str = "the body") -> Any:
    """Return the document in ``body``, which messages call ``what``.

    :raises TooManyValues: the document has more than :data:`MOST_VALUES` values.
    :raises NotJson: ``body`` is not a JSON document, repeats a key, or has a value that no record
        can hold.
    """
    # Checked before decoding, because a document takes up to fifty times the memory of its text.
    if (
        _signs(body) >= MOST_VALUES
        and _signs(body) - sum(_signs(text[0]) for text in _TEXT.finditer(body)) >= MOST_VALUES
    ):
        raise TooManyValues(f"{what} has more than {MOST_VALUES} values", "send less at once")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotJson(
            f"{what} is not text in UTF-8, at byte {error.start}", "send JSON in UTF-8"
        ) from error
    try:
        document = json.loads(
            text, object_pairs_hook=_object, parse_float=_number, parse_constant=_constant
        )
        if "\\u" in text:
            # A lone surrogate is valid JSON, but can be neither stored nor sent on.
            json.dumps(document, ensure_ascii=False).encode()
    except RecursionError as error:
        raise NotJson(
            f"{what} is nested too deeply", "send a JSON document as the API describes it"
        ) from error
    except ValueError as error:
        raise NotJson(
            f"{what} is no JSON document: {printable(str(error))[:200]}",
            "send a JSON document as the API describes it",
        ) from error
    return document


def _signs(part: bytes) -> int:
    """Return how often a character that precedes a value (``,``, ``[``, ``{``) is in ``part``."""
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
    # JSON Schema takes 4.0 for an integer, so the handlers get an integer too.
    return int(value) if value.is_integer() else value


def _constant(text: str) -> float:
    raise ValueError(f"{text} is no number")
