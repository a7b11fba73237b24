"""Validation of every request by openapi.yaml, before its handler sees it."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl

from falcon import Request, Response

from agent.api.body import decode
from agent.api.description import JSON, MOST_FAULTS, ApiOperation, Description, Parameters, pointer
from agent.api.problem import (
    Fault,
    InvalidApiRequest,
    Place,
    UnknownMethod,
    VersionMissing,
    WrongMediaType,
)
from agent.model.names import printable

# No request needs as many parameters.
MOST_PARAMETERS = 150
# The one header whose absence has a status of its own.
PRECONDITION = "If-Match"
BOOLEANS = {"true": True, "false": False}


class Validation:
    """Middleware of falcon. Puts the request's parts, in their JSON types, into
    ``request.context``: ``query``, ``header`` and ``body``.
    """

    def __init__(self, description: Description) -> None:
        self._operations = description.operations

    def process_resource(
        self,
        request: Request,
        _response: Response,
        _resource: object,
        parameters: Mapping[str, str],
    ) -> None:
        """Validate all parts of the request, and refuse it with the first faults.

        :raises UnknownMethod, VersionMissing, InvalidApiRequest, NotJson, TooManyValues,
            WrongMediaType: the request is not as described.
        """
        template = request.uri_template or ""
        operation = self._operations.get((template, request.method))
        if operation is None:
            raise UnknownMethod(
                request.path,
                request.method,
                sorted(method for path, method in self._operations if path == template),
            )
        faults = list(_wrong("path", operation.path, parameters))
        query, repeated = _query(request, operation.query)
        faults += [*repeated, *_wrong("query", operation.query, query)]
        if PRECONDITION in operation.header.types and request.get_header(PRECONDITION) is None:
            raise VersionMissing(f"{PRECONDITION} is missing", "read the record, and send its ETag")
        header = {
            name: value
            for name in operation.header.types
            if (value := request.get_header(name)) is not None
        }
        faults += _wrong("header", operation.header, header)
        raw = request.bounded_stream.read() if request.content_length else b""
        body, amiss = _body(raw, request.content_type or "", operation)
        if faults := [*faults, *amiss]:
            raise InvalidApiRequest(faults[:MOST_FAULTS])
        request.context.query, request.context.header, request.context.body = query, header, body


def _wrong(place: Place, expected: Parameters, given: Mapping[str, Any]) -> Iterator[Fault]:
    for where, detail in expected.schema.faults(given):
        yield Fault(place, where, detail)


def _query(request: Request, expected: Parameters) -> tuple[Mapping[str, Any], Iterable[Fault]]:
    """Return the query's parameters in their types, and the faults of those that are given
    repeatedly.
    """
    try:
        pairs = parse_qsl(
            request.query_string, keep_blank_values=True, max_num_fields=MOST_PARAMETERS
        )
    except ValueError as error:
        raise InvalidApiRequest(
            [Fault("query", "", f"has more than {MOST_PARAMETERS} parameters")]
        ) from error
    lists = {name for name, types in expected.types.items() if "array" in types}
    found: dict[str, Any] = {name: [] for name, _ in pairs if name in lists}
    for name, text in pairs:
        if name in lists:
            found[name].append(text)
        else:
            found[name] = _convert(text, expected.types.get(name, frozenset()))
    names = [name for name, _ in pairs]
    return found, [
        Fault("query", pointer([name]), "is given more than once")
        for name in found
        if names.count(name) > 1 and name not in lists
    ]


def _convert(text: str, types: Iterable[str]) -> Any:
    """Return a parameter in its type, or as text, which the schema then refuses."""
    if "integer" in types and re.fullmatch(r"-?[0-9]{1,18}", text, re.ASCII):
        return int(text)
    return BOOLEANS.get(text, text) if "boolean" in types else text


def _body(raw: bytes, media_type: str, operation: ApiOperation) -> tuple[Any, list[Fault]]:
    """Return the document, an empty object if there is none, and the faults of the body."""
    if operation.body is None:
        return {}, [Fault("body", "", "is not expected here")] if raw else []
    if not raw:
        return {}, [Fault("body", "", "is missing")] if operation.body_required else []
    kind = media_type.partition(";")[0].strip().lower()
    if kind != JSON:
        raise WrongMediaType(
            f"the body is {printable(kind)[:100] or 'of no media type'}, not {JSON}",
            f"send Content-Type: {JSON}",
        )
    document = decode(raw)
    return document, [
        Fault("body", place, detail) for place, detail in operation.body.faults(document)
    ]
