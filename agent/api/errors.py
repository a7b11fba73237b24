"""Errors of requests to the API, and of the API itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agent.errors import AgentError, ConfigError
from agent.model.names import name_first, printable

Place = Literal["body", "path", "query", "header"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a request."""

    place: Place
    """The part of the request that ``pointer`` leads into."""
    pointer: str
    """A JSON pointer."""
    detail: str


class ApiRequestError(AgentError):
    """A request that is malformed, that the API does not serve, or that its sender may not make."""


class InvalidApiRequest(ApiRequestError):
    """The request is not valid by openapi.yaml. ``faults``: the first of its faults."""

    code = "request.invalid"

    def __init__(self, faults: Sequence[Fault]) -> None:
        lines = [f"{fault.place} {fault.pointer or '/'}: {fault.detail}" for fault in faults]
        super().__init__(
            f"the request is not as the API describes it: {name_first(lines, 5, '; ')}",
            "correct all that errors names",
        )
        self.faults = tuple(faults)


class NotJson(ApiRequestError):
    """The body is not one JSON document."""

    code = "request.not-json"


class TooManyValues(ApiRequestError):
    """The body holds more values than any request needs."""

    code = "request.too-large"


class WrongMediaType(ApiRequestError):
    """The media type of the body is not JSON."""

    code = "request.media-type"


class VersionMissing(ApiRequestError):
    """A change of a record does not name the version of the record that its sender has read."""

    code = "request.version-missing"


class UnknownPath(ApiRequestError):
    """The API has no such path."""

    code = "request.path"


class UnknownMethod(ApiRequestError):
    """The path does not take the method."""

    code = "request.method"

    def __init__(self, path: str, method: str, allowed: Sequence[str]) -> None:
        what = f"{printable(path)[:200]} does not take {printable(method)[:20]}"
        super().__init__(what, f"use {' or '.join(allowed)}", allowed=tuple(allowed))


class Forbidden(ApiRequestError):
    """The peer's user does not have the right to read or to write."""

    code = "access.forbidden"


class UnknownAudit(ApiRequestError):
    """No audit with that id is known; it may have been too long ago."""

    code = "audit.unknown"


class TooManyAudits(ApiRequestError):
    """The queue of requested audits is full."""

    code = "audit.too-many"


class Unwell(AgentError):
    """The agent does not work as it should."""

    code = "agent.unwell"


class Unready(AgentError):
    """Not every node was audited and is well. ``reasons``: one line each."""

    code = "agent.not-ready"

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__(
            f"not ready: {'; '.join(reasons)}",
            "wait, or look at what the reasons name",
            reasons=list(reasons),
        )


class Busy(AgentError):
    """All places for requests that wait for ``what`` are taken."""

    code = "agent.busy"

    def __init__(self, what: str) -> None:
        super().__init__(f"too many requests wait already for {what}", "try again in a moment")


class Stopping(AgentError):
    """The agent is about to end."""

    code = "agent.stopping"

    def __init__(self) -> None:
        super().__init__("the agent is stopping", "ask again when it runs")


class ListenerUnusable(ConfigError):
    """The agent cannot listen at the metrics address."""

    code = "api.metrics-address"


class SocketUnusable(ConfigError):
    """The socket cannot be opened."""

    code = "api.socket"
