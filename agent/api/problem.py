"""Errors of requests to the API and of the API itself, and their RFC 9457 problem documents: one
table from codes to statuses and titles. With them, the limit of requests that wait.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from threading import Condition
from typing import Any, Literal

from agent.deadline import left
from agent.errors import AgentError, ConfigError, ConfigErrors
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
    """The request is not as openapi.yaml describes it. ``faults``: its first fault.
    Remedy: correct what ``errors`` names.
    """

    code = "request.invalid"

    def __init__(self, faults: Sequence[Fault]) -> None:
        lines = [f"{fault.place} {fault.pointer or '/'}: {fault.detail}" for fault in faults]
        super().__init__(
            f"the request is not as the API describes it: {name_first(lines, 5, '; ')}",
            "correct what errors names",
        )
        self.faults = tuple(faults)


class NotJson(ApiRequestError):
    """The body is not one JSON document.
    Remedy: send one JSON document.
    """

    code = "request.not-json"


class TooLarge(ApiRequestError):
    """The body is larger than any request.
    Remedy: send a smaller request.
    """

    code = "request.too-large"


class WrongMediaType(ApiRequestError):
    """The media type of the body is not JSON.
    Remedy: send ``Content-Type: application/json``.
    """

    code = "request.media-type"


class VersionMissing(ApiRequestError):
    """A change of a record does not name the version of the record that its sender has read.
    Remedy: send the version of the record as ``If-Match``.
    """

    code = "request.version-missing"


class UnknownPath(ApiRequestError):
    """The API has no such path.
    Remedy: use a path of the reference of the API.
    """

    code = "request.path"


class UnknownMethod(ApiRequestError):
    """The path does not take the method.
    Remedy: use a method of the reference of the API.
    """

    code = "request.method"

    def __init__(self, path: str, method: str, allowed: Sequence[str]) -> None:
        what = f"{printable(path)[:200]} does not take {printable(method)[:20]}"
        super().__init__(what, f"use {' or '.join(allowed)}", allowed=tuple(allowed))


class Forbidden(ApiRequestError):
    """The peer's user does not have the right to read or to write.
    Remedy: use a user of ``[api] read_group`` or ``write_group``.
    """

    code = "access.forbidden"


class UnknownAudit(ApiRequestError):
    """No audit with that id is known; it may have been too long ago.
    Remedy: ask for a new audit.
    """

    code = "audit.unknown"


class TooManyAudits(ApiRequestError):
    """The queue of requested audits is full.
    Remedy: wait for the audits that are queued.
    """

    code = "audit.too-many"


class Unwell(AgentError):
    """The agent does not work as it should.
    Remedy: see ``systemctl status compute-node-agent`` and the log.
    """

    code = "agent.unwell"


class Unready(AgentError):
    """Not every node was audited and is well. ``reasons``: one line each.
    Remedy: wait, or look at what ``reasons`` names.
    """

    code = "agent.not-ready"

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__(
            f"not ready: {'; '.join(reasons)}",
            "wait, or look at what the reasons name",
            reasons=list(reasons),
        )


class Busy(AgentError):
    """All places for requests that wait for ``what`` are taken.
    Remedy: try again in a moment.
    """

    code = "agent.busy"

    def __init__(self, what: str) -> None:
        super().__init__(f"too many requests wait already for {what}", "try again in a moment")


class Stopping(AgentError):
    """The agent is about to end.
    Remedy: ask again when the agent runs.
    """

    code = "agent.stopping"

    def __init__(self) -> None:
        super().__init__("the agent is stopping", "ask again when it runs")


class ListenerUnusable(ConfigError):
    """The agent cannot listen at the metrics address.
    Remedy: name a free address of this host in ``[api] metrics_address``.
    """

    code = "api.metrics-address"


class SocketUnusable(ConfigError):
    """The socket cannot be opened.
    Remedy: see the folder of ``[api] socket`` and its rights.
    """

    code = "api.socket"


MEDIA_TYPE = "application/problem+json"
# The type is a name, because no web address would be valid for ever.
TYPE = "urn:compute-node-agent:problem:"

KINDS: Mapping[str, tuple[int, str]] = {
    # The request itself.
    "request.invalid": (400, "The request is invalid"),
    "request.topology": (400, "The flavor asks for something impossible"),
    "request.devices": (400, "The flavor asks for devices that nothing is called by"),
    "request.flavor-image": (400, "Flavor and image contradict each other"),
    "request.not-json": (400, "The body is no JSON document"),
    "request.malformed": (400, "This is no HTTP request"),
    "access.forbidden": (403, "You may not do that"),
    "request.path": (404, "There is no such path"),
    "request.method": (405, "The path does not take that method"),
    "request.length": (411, "The length of the body is not given"),
    "request.too-large": (413, "The request is too large"),
    "request.media-type": (415, "The body has the wrong media type"),
    "request.version-missing": (428, "It is not said which version is to be changed"),
    # The object of the request: node, instance, claim, device, audit, configuration.
    "node.unknown": (404, "There is no such node"),
    "instance.unknown": (404, "There is no such instance"),
    "claim.unknown": (404, "There is no such claim"),
    "device.unknown": (404, "There is no such device"),
    "audit.unknown": (404, "There is no such audit"),
    "claim.id-taken": (409, "The id belongs to another request"),
    "claim.released": (409, "The claim was given back"),
    "instance.claimed": (409, "The instance has another claim"),
    "instance.elsewhere": (409, "The instance is elsewhere"),
    "instance.differs": (409, "The record of the instance says something else"),
    "agent.standing-by": (409, "The nodes are managed elsewhere"),
    "agent.observes-only": (409, "The agent only observes"),
    "node.elsewhere": (409, "The node is managed elsewhere"),
    "resources.unavailable": (409, "The node does not have that"),
    "resources.undecided": (409, "Nobody knows whether the node has that"),
    "state.wrong": (409, "It is not in the state for that"),
    "rebuild.topology": (409, "The guest would have other cells"),
    "node.unavailable": (409, "The node is not available"),
    "node.degraded": (409, "The node's records contradict each other"),
    "node.guests-untold": (409, "Nobody knows the node's guests"),
    "allocation.several-trees": (409, "It is not said which node is meant"),
    "tracker.refused": (409, "That cannot be done"),
    "record.changed": (412, "It was changed since you read it"),
    "config.invalid": (422, "The configuration cannot be used"),
    "audit.too-many": (429, "Too many audits wait"),
    # The agent.
    "agent.bug": (500, "The agent has a bug"),
    "agent.not-ready": (503, "The agent is not ready"),
    "agent.stopping": (503, "The agent is stopping"),
    "agent.unwell": (503, "The agent does not work as it should"),
    "agent.busy": (503, "Too many requests at once"),
    "agent.deadline": (503, "It was not done in time"),
    "node.not-ready": (503, "The node was not audited yet"),
    "store.conflict": (503, "Others change it all the time"),
    "store.unusable": (503, "The store cannot be used"),
    "driver.not-ready": (503, "The driver's backend does not answer"),
    "driver.timeout": (504, "The driver did not answer in time"),
    "placement.unreachable": (504, "Placement does not answer"),
    "placement.refused": (502, "Placement refused it"),
    "allocation.out-of-retries": (503, "Others change it in Placement all the time"),
    "placement.conflict": (502, "Others change it in Placement all the time"),
    "placement.not-done": (502, "Placement confirmed what it did not do"),
    "placement.too-old": (502, "Placement is too old"),
}
OTHER = (500, "The agent could not do it")

# What waitress and falcon refuse by themselves: from the status to code and remedy.
REFUSALS: Mapping[int, tuple[str, str]] = {
    400: ("request.malformed", "speak HTTP/1.1"),
    405: ("request.method", "use a method that openapi.yaml describes"),
    411: ("request.length", "send a Content-Length instead of a Transfer-Encoding"),
    413: ("request.too-large", "send headers of 32 KiB and a body of 1 MiB at most"),
    431: ("request.too-large", "send headers of 32 KiB and a body of 1 MiB at most"),
    501: ("request.length", "send a Content-Length instead of a Transfer-Encoding"),
}


def status_of(error: AgentError) -> int:
    """Return the HTTP status for an error."""
    return KINDS.get(error.code, OTHER)[0]


def problem_of(error: AgentError) -> dict[str, Any]:
    """Return the problem document for an error; ``errors`` has the single ones if there are
    several.
    """
    return {**plain(error.code, error.message, error.remedy), **_details(error)}


def plain(code: str, detail: str, remedy: str) -> dict[str, Any]:
    """Return a problem document without details."""
    status, title = KINDS.get(code, OTHER)
    return {
        "type": f"{TYPE}{code}",
        "title": title,
        "status": status,
        "detail": printable(detail),
        "code": code,
        "remedy": printable(remedy),
    }


def _details(error: AgentError) -> dict[str, Any]:
    if isinstance(error, InvalidApiRequest):
        return {
            "errors": [
                {"in": fault.place, "pointer": fault.pointer, "detail": fault.detail}
                for fault in error.faults
            ]
        }
    if isinstance(error, ConfigErrors):
        return {
            "errors": [
                {
                    "code": problem.code,
                    "detail": printable(problem.message),
                    "remedy": printable(problem.remedy),
                }
                for problem in error.errors
            ]
        }
    if reasons := error.data.get("reasons"):
        return {"reasons": [printable(reason) for reason in reasons]}
    return {}


def phrase(status: int) -> str:
    """Return the text of the status line."""
    return f"{status} {HTTPStatus(status).phrase}"


def refusal(status: int) -> tuple[str, str]:
    """Return code and remedy for a refusal by a library. Without an entry of its own, a status
    below 500 is a malformed request, because an error of the request is not a bug of the agent.
    """
    return REFUSALS.get(status) or (
        REFUSALS[400] if 400 <= status < 500 else ("agent.bug", "report it, with the log")
    )


class WaitLimit:
    """A number of places for requests that wait. Each of them keeps a thread from serving others,
    so that there are fewer places than threads. Threads may share it.

    ``patience``: in seconds. A request waits for a place as long as a place was taken or freed
    within that time; otherwise none will be free soon.
    """

    def __init__(self, places: int, what: str, patience: float = 0) -> None:
        self._free, self._what, self._patience = places, what, patience
        self._changed = Condition()
        self._moved = 0.0

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place within the context.

        :raises Busy: there is none.
        """
        with self.place_if_free() as found:
            if not found:
                raise Busy(self._what)
            yield

    @contextmanager
    def place_if_free(self) -> Iterator[bool]:
        """Hold a place within the context if there is one; yield whether there is."""
        found = self._take()
        try:
            yield found
        finally:
            if found:
                self._leave()

    def _take(self) -> bool:
        with self._changed:
            while not self._free:
                seconds = left(self._moved + self._patience - time.monotonic())
                if seconds <= 0:
                    return False
                self._changed.wait(seconds)
            self._free -= 1
            self._moved = time.monotonic()
            return True

    def _leave(self) -> None:
        with self._changed:
            self._free += 1
            self._moved = time.monotonic()
            self._changed.notify()
