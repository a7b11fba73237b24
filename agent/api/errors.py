"""What is wrong with a request, whatever it is about."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agent.errors import AgentError, ConfigError
from agent.model.names import printable

Place = Literal["body", "path", "query", "header"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a request. ``pointer`` is a JSON pointer into the part called
    ``place``.
    """

    place: Place
    pointer: str
    detail: str


class ApiRequestError(AgentError):
    """A request that cannot be understood or is not for its sender to make."""


class InvalidApiRequest(ApiRequestError):
    """The request is not as openapi.yaml describes it. ``faults``: the first of them."""

    code = "request.invalid"

    def __init__(self, faults: Sequence[Fault]) -> None:
        shown = "; ".join(
            f"{fault.place} {fault.pointer or '/'}: {fault.detail}" for fault in faults[:5]
        )
        more = f"; and {len(faults) - 5} more" if len(faults) > 5 else ""
        super().__init__(
            f"the request is not as the API describes it: {shown}{more}",
            "correct all that errors names",
        )
        self.faults = tuple(faults)


class NotJson(ApiRequestError):
    """The body is not one JSON document."""

    code = "request.not-json"


class TooManyValues(ApiRequestError):
    """The body holds more than any request needs."""

    code = "request.too-large"


class WrongMediaType(ApiRequestError):
    """The body is something other than JSON."""

    code = "request.media-type"


class VersionMissing(ApiRequestError):
    """A record is to be changed, and it is not said which version of it was seen."""

    code = "request.version-missing"


class UnknownPath(ApiRequestError):
    """Nothing is there."""

    code = "request.path"


class UnknownMethod(ApiRequestError):
    """The path does not take that method."""

    code = "request.method"

    def __init__(self, path: str, method: str, allowed: Sequence[str]) -> None:
        what = f"{printable(path)[:200]} does not take {printable(method)[:20]}"
        super().__init__(what, f"use {' or '.join(allowed)}", allowed=tuple(allowed))


class Forbidden(ApiRequestError):
    """The user at the other end may not do that."""

    code = "access.forbidden"


class UnknownAudit(ApiRequestError):
    """No audit has that id, or it was long ago."""

    code = "audit.unknown"


class TooManyAudits(ApiRequestError):
    """More audits wait than are kept."""

    code = "audit.too-many"


class Unwell(AgentError):
    """The agent does not work as it should."""

    code = "agent.unwell"


class Unready(AgentError):
    """Not every node was audited and is well. ``reasons``: a line each."""

    code = "agent.not-ready"

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__(
            f"not ready: {'; '.join(reasons)}",
            "wait, or look at what the reasons name",
            reasons=list(reasons),
        )


class Busy(AgentError):
    """As many requests wait for others as may."""

    code = "agent.busy"

    def __init__(self, what: str) -> None:
        super().__init__(f"too many requests wait already for {what}", "try again in a moment")


class Stopping(AgentError):
    """The agent is about to end."""

    code = "agent.stopping"

    def __init__(self) -> None:
        super().__init__("the agent is stopping", "ask again when it runs")


class ListenerUnusable(ConfigError):
    """Nobody can listen at the address for figures."""

    code = "api.metrics-address"


class SocketUnusable(ConfigError):
    """The socket cannot be opened."""

    code = "api.socket"
