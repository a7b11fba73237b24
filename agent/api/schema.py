"""JSON Schema 2020-12 as requests need it: compiled once, every fault named with where it is and in few words."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from jsonschema.exceptions import ValidationError
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from agent.model.json_schema import Validator
from agent.model.names import printable

BASE = "urn:compute-node-agent:openapi"
LONGEST = 200
MOST_FAULTS = 20

Registered = Registry[Any]


def registered(document: Mapping[str, Any]) -> Registered:
    """``document``, for references into it."""
    resource: Resource[Any] = DRAFT202012.create_resource(document)
    found: Registered = Registry().with_resource(BASE, resource)
    return found


class RequestSchema:
    """One compiled schema. Its references lead into the registered document."""

    def __init__(self, schema: Mapping[str, Any], registry: Registered) -> None:
        self._validator = Validator(_absolute(schema), registry=registry)

    def faults(self, instance: Any) -> Iterator[tuple[str, str]]:
        """The first :data:`MOST_FAULTS` things that are wrong with ``instance``, as JSON pointers and texts."""
        # No more are looked for, because a body may have hundreds of thousands.
        first = islice(self._validator.iter_errors(instance), MOST_FAULTS)
        found = sorted(first, key=lambda error: [str(part) for part in error.absolute_path])
        for error in found:
            yield pointer(error.absolute_path), _text(error)


def pointer(path: Iterable[str | int]) -> str:
    """A JSON pointer, RFC 6901; one that is very long is cut off."""
    found = "".join("/" + str(part)[:LONGEST].replace("~", "~0").replace("/", "~1") for part in path)
    return found if len(found) <= LONGEST else f"{found[: LONGEST - 3]}..."


def _absolute(schema: Any) -> Any:
    """``schema`` with every reference into the document made absolute."""
    if isinstance(schema, Mapping):
        return {key: f"{BASE}{value}" if key == "$ref" and isinstance(value, str) else _absolute(value) for key, value in schema.items()}
    return [_absolute(one) for one in schema] if isinstance(schema, list) else schema


def _text(error: ValidationError) -> str:
    """What is wrong, without repeating a long value."""
    if error.validator == "not":
        return "is not allowed here"
    if error.validator == "enum":
        return f"is none of {', '.join(str(one) for one in error.validator_value)}"
    text = printable(error.message)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
