"""The reading of JSON documents in the types of :mod:`agent.api.requests`."""

import re
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from agent.api.problem import Fault, InvalidApiRequest, NotJson, Place
from agent.model.names import printable

LONGEST = 200
"""Characters of a fault."""
END = r"$(?!\n)"
"""The end of a pattern, because in Python $ matches before a last newline too."""

Document = TypeVar("Document")


def read_json(text: bytes, kind: type[Document], what: str = "the body") -> Document:
    """Return the document in ``text``, which messages call ``what``.

    :raises NotJson: it is no JSON document.
    :raises InvalidApiRequest: the document is not of that kind; with its first fault.
    """
    try:
        try:
            return msgspec.json.decode(text, type=kind)
        except msgspec.ValidationError as error:
            if "got `float`" not in str(error):
                raise
            # JSON Schema takes 4.0 for a whole number, and msgspec does not.
            return msgspec.convert(_with_whole_numbers(msgspec.json.decode(text)), kind)
    except msgspec.ValidationError as error:
        raise invalid("body", error) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotJson(
            f"{what} is no JSON document: {printable(str(error))[:LONGEST]}",
            "send a JSON document as the API describes it",
        ) from error


def _with_whole_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


_FAULT = re.compile(r"(?P<what>.*?)(?: - at (?:`key` in )?`\$?(?P<path>[^`]*)`)?", re.DOTALL)
_STEP = re.compile(r"\.([^.\[\]]+)|\[([^\]]*)\]")


def invalid(place: Place, error: msgspec.ValidationError) -> InvalidApiRequest:
    """Return the error of a part of a request, with its first fault."""
    found = _FAULT.fullmatch(str(error))
    what, path = (found["what"], found["path"] or "") if found else (str(error), "")
    text = printable(what.replace("`", "").replace(END, "$").replace(repr(END)[1:-1], "$"))
    detail = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
    # A key or a value of a mapping has no name there: the mapping itself is named.
    steps = [name or index for name, index in _STEP.findall(path.partition("[...]")[0])]
    return InvalidApiRequest([Fault(place, pointer(steps), detail)])


def pointer(path: Iterable[str]) -> str:
    """Return a JSON pointer (RFC 6901), cut off at :data:`LONGEST` characters."""
    found = "".join("/" + part[:LONGEST].replace("~", "~0").replace("/", "~1") for part in path)
    return found if len(found) <= LONGEST else f"{found[: LONGEST - 3]}..."
