"""The operations of the API with the parts of their requests, and the check of every request
before its handler sees it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

import msgspec
from falcon import Request, Response
from msgspec import UNSET, Meta, UnsetType
from msgspec.json import Decoder

from agent.api.body import END, invalid, pointer, read_json
from agent.api.problem import (
    Fault,
    InvalidApiRequest,
    Place,
    TooLarge,
    UnknownMethod,
    VersionMissing,
    WrongMediaType,
)
from agent.api.requests import (
    UUID,
    BuildOutcome,
    Changes,
    CleaningReport,
    DroppedHalf,
    ImportOrder,
    Move,
    NewAudit,
    NewClaim,
    NewDeviceClaim,
    Progress,
    ProviderName,
    RequestPart,
    Uuid,
)
from agent.model.names import printable

JSON = "application/json"
MAX_BODY = 1024 * 1024
"""Bytes."""
# No request needs as many parameters.
MOST_PARAMETERS = 150
# The one header whose absence has a status of its own.
PRECONDITION = "If-Match"


class Nothing(RequestPart):
    """No parameters."""


class OfUuid(RequestPart):
    """The path of a node, an instance or a guest."""

    uuid: Uuid


class OfId(RequestPart):
    """The path of a claim or an audit."""

    id: Uuid


class OfMove(RequestPart):
    """The path of a move."""

    id: Annotated[Uuid, Meta(description="The move's id, or its migration's uuid")]


class ListPage(RequestPart):
    """A page of a list."""

    limit: Annotated[
        Annotated[int, Meta(ge=1, le=1000)] | UnsetType,
        Meta(description="The most to show; 1000 unless given"),
    ] = UNSET
    marker: Annotated[Uuid | UnsetType, Meta(description="The last one of the page before")] = UNSET


class ClaimsPage(ListPage):
    """A page of claims."""

    node: Uuid | UnsetType = UNSET
    instance: Uuid | UnsetType = UNSET


class DevicesPage(ListPage):
    """A page of devices."""

    marker: Annotated[
        Annotated[str, Meta(pattern=f"^{UUID}/[0-9a-f:.]{{1,32}}{END}", max_length=69)] | UnsetType,
        Meta(description="The last device of the page before, as node/address"),
    ] = UNSET


class ChosenNodes(RequestPart):
    """Nodes of a page for a browser."""

    node: Annotated[
        Annotated[list[ProviderName], Meta(min_length=1, max_length=100)] | UnsetType,
        Meta(
            description="A name, a shell pattern of names, or a uuid; may be given several times. "
            "All nodes unless given"
        ),
    ] = UNSET


class HeldDevices(RequestPart):
    """The devices that an instance has in one state."""

    instance: Uuid
    state: Literal["claimed", "allocated"]


class RemovalScope(RequestPart):
    """Of which providers an allocation is removed."""

    scope: Annotated[
        Literal["node", "all"],
        Meta(description="node: what it has of one of this agent's nodes; all: everything"),
    ]
    node: Annotated[
        Uuid | UnsetType,
        Meta(
            description="Which of this agent's nodes, with scope=node; needed if the instance has "
            "something of several of them"
        ),
    ] = UNSET


class Waiting(RequestPart, rename={"prefer": "Prefer"}):
    """The headers of a request that may wait."""

    prefer: Annotated[
        Annotated[str, Meta(pattern=rf"^[\x20-\x7e]*{END}", max_length=100)] | UnsetType,
        Meta(description="wait=N: seconds to wait for the report, RFC 7240"),
    ] = UNSET


_VERSION = "(0|[1-9][0-9]{0,17})"


class OfVersion(RequestPart, rename={"if_match": PRECONDITION}):
    """The headers of a change of a record."""

    if_match: Annotated[
        str,
        Meta(
            pattern=f'^("{_VERSION}"|{_VERSION}){END}',
            max_length=22,
            description="The version of the record that the change is for, with or without "
            "quotes; without any the answer is 428",
        ),
    ]


@dataclass(frozen=True, slots=True)
class ApiOperation:
    """The parts of a request; ``body`` is None where there is none."""

    path: type[RequestPart] = Nothing
    query: type[RequestPart] = Nothing
    header: type[RequestPart] = Nothing
    body: Any = None
    body_required: bool = True

    def __post_init__(self) -> None:
        # Before there are threads: msgspec describes a type to itself when it is used for the first
        # time, and a thread that uses it at that moment crashes the process.
        for kind in (self.path, self.query, self.header, self.body):
            Decoder(kind)


_LOOK = ApiOperation()
_NODE, _MOVE, _CLAIM = ApiOperation(OfUuid), ApiOperation(OfMove), ApiOperation(OfId)
OPERATIONS: Mapping[tuple[str, str], ApiOperation] = {
    ("/healthz", "GET"): _LOOK,
    ("/readyz", "GET"): _LOOK,
    ("/metrics", "GET"): _LOOK,
    ("/v1/nodes", "GET"): ApiOperation(query=ListPage),
    ("/v1/nodes/{uuid}", "GET"): _NODE,
    ("/v1/nodes/{uuid}/tree", "GET"): _NODE,
    ("/v1/nodes/{uuid}/report", "GET"): _NODE,
    ("/v1/report", "GET"): ApiOperation(query=ChosenNodes),
    ("/v1/nodes/{uuid}/builds", "POST"): ApiOperation(OfUuid, body=BuildOutcome),
    ("/v1/audits", "POST"): ApiOperation(header=Waiting, body=NewAudit, body_required=False),
    ("/v1/audits/{id}", "GET"): ApiOperation(OfId, header=Waiting),
    ("/v1/reload", "POST"): _LOOK,
    ("/v1/claims", "GET"): ApiOperation(query=ClaimsPage),
    ("/v1/claims", "POST"): ApiOperation(body=NewClaim),
    ("/v1/claims/{id}", "GET"): _CLAIM,
    ("/v1/claims/{id}", "DELETE"): _CLAIM,
    ("/v1/moves", "POST"): ApiOperation(body=Move),
    ("/v1/moves/{id}", "GET"): _MOVE,
    ("/v1/moves/{id}", "PATCH"): ApiOperation(OfMove, body=Progress),
    ("/v1/moves/{id}/drop", "POST"): ApiOperation(OfMove, body=DroppedHalf),
    ("/v1/moves/{id}/confirm", "POST"): _MOVE,
    ("/v1/moves/{id}/revert", "POST"): _MOVE,
    ("/v1/moves/{id}/abort", "POST"): _MOVE,
    ("/v1/moves/{id}/finish", "POST"): _MOVE,
    ("/v1/devices", "GET"): ApiOperation(query=DevicesPage),
    ("/v1/devices/cleaned", "POST"): ApiOperation(body=CleaningReport),
    ("/v1/devices/claims", "POST"): ApiOperation(body=NewDeviceClaim),
    ("/v1/devices/claims", "DELETE"): ApiOperation(query=HeldDevices),
    ("/v1/devices/claims/{id}", "DELETE"): _CLAIM,
    ("/v1/devices/claims/{id}/allocate", "POST"): _CLAIM,
    ("/v1/guests", "GET"): _LOOK,
    ("/v1/guests/import", "POST"): ApiOperation(body=ImportOrder),
    ("/v1/guests/{uuid}", "DELETE"): _NODE,
    ("/v1/instances", "GET"): ApiOperation(query=ListPage),
    ("/v1/instances/{uuid}", "GET"): _NODE,
    ("/v1/instances/{uuid}", "PATCH"): ApiOperation(OfUuid, header=OfVersion, body=Changes),
    ("/v1/instances/{uuid}/allocation", "DELETE"): ApiOperation(OfUuid, query=RemovalScope),
    ("/v1/migrations", "GET"): ApiOperation(query=ListPage),
}


class Validation:
    """Middleware of falcon. Puts the request's parts into ``request.context``: ``query`` and
    ``header`` by name, and ``body``.
    """

    def process_resource(
        self,
        request: Request,
        _response: Response,
        _resource: object,
        parameters: Mapping[str, str],
    ) -> None:
        """Check all parts of the request, and refuse it with the first fault.

        :raises UnknownMethod, VersionMissing, InvalidApiRequest, NotJson, TooLarge,
            WrongMediaType: the request is not as described.
        """
        template = request.uri_template or ""
        operation = OPERATIONS.get((template, request.method))
        if operation is None:
            allowed = sorted(method for path, method in OPERATIONS if path == template)
            raise UnknownMethod(request.path, request.method, allowed)
        _parameters("path", operation.path, parameters)
        query = _query(request.query_string, operation.query)
        request.context.query = _parameters("query", operation.query, query)
        if operation.header is OfVersion and request.get_header(PRECONDITION) is None:
            raise VersionMissing(f"{PRECONDITION} is missing", "read the record, and send its ETag")
        header = {
            name: value
            for name in operation.header.__struct_encode_fields__
            if (value := request.get_header(name)) is not None
        }
        request.context.header = _parameters("header", operation.header, header)
        request.context.body = _body(request, operation)


def _parameters(place: Place, kind: type[RequestPart], found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of one place, in their types."""
    try:
        parameters: dict[str, Any] = msgspec.to_builtins(msgspec.convert(found, kind, strict=False))
    except msgspec.ValidationError as error:
        raise invalid(place, error) from error
    return parameters


def _query(text: str, kind: type[RequestPart]) -> Mapping[str, Any]:
    """Return the query's parameters as texts and, where several are allowed, lists of them.

    :raises InvalidApiRequest: there are too many, or one is repeated.
    """
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_PARAMETERS)
    except ValueError as error:
        fault = Fault("query", "", f"has more than {MOST_PARAMETERS} parameters")
        raise InvalidApiRequest([fault]) from error
    lists = {"node"} if kind is ChosenNodes else set[str]()
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in lists:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise InvalidApiRequest([Fault("query", pointer([name]), "is given more than once")])
        else:
            found[name] = value
    return found


def _body(request: Request, operation: ApiOperation) -> Any:
    if (request.content_length or 0) > MAX_BODY:
        raise TooLarge(f"the body has more than {MAX_BODY} bytes", "send less at once")
    raw = request.bounded_stream.read() if request.content_length else b""
    if operation.body is None:
        if raw:
            raise InvalidApiRequest([Fault("body", "", "is not expected here")])
        return None
    if not raw:
        if operation.body_required:
            raise InvalidApiRequest([Fault("body", "", "is missing")])
        raw = b"{}"
    elif (kind := (request.content_type or "").partition(";")[0].strip().lower()) != JSON:
        raise WrongMediaType(
            f"the body is {printable(kind)[:100] or 'of no media type'}, not {JSON}",
            f"send Content-Type: {JSON}",
        )
    return read_json(raw, operation.body)
