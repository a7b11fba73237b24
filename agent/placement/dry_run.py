"""Recording of writing requests: for display, and in a dry run instead of sending them."""

import json
from dataclasses import dataclass
from typing import Any

from agent.placement.answers import PlacementAnswer
from agent.placement.transport import Exchange, Transport


@dataclass(frozen=True, slots=True)
class Write:
    """One request other than a GET."""

    method: str
    path: str
    version: str | None
    body: Any
    status: int | None
    """The status of the answer, ``None`` if the request was not sent."""


class RecordingExchange(Exchange):
    """An exchange that records every write that was answered.

    In a dry run only GETs are sent, and every write is assumed to succeed. A read
    after such a write still shows the state before it, so a dry run suits only operations that
    decide before they write.
    """

    def __init__(self, transport: Transport, request_id: str, *, dry_run: bool) -> None:
        super().__init__(transport, request_id)
        self.dry_run = dry_run
        self.writes: list[Write] = []

    def send(
        self,
        method: str,
        path: str,
        version: str | None,
        body: Any = None,
        timeout: float | None = None,
        *,
        patient: bool = False,
    ) -> PlacementAnswer:
        """Send or record one request, see :meth:`Exchange.send`."""
        if method == "GET":
            return super().send(method, path, version, body, timeout, patient=patient)
        answer = (
            self._assume_success(method, path, body)
            if self.dry_run
            else super().send(method, path, version, body, timeout)
        )
        self.writes.append(
            Write(method, path, version, body, None if self.dry_run else answer.status)
        )
        return answer

    def _assume_success(self, method: str, path: str, body: Any) -> PlacementAnswer:
        """Return the answer of a Placement that accepts the request."""
        without_body = method == "DELETE" or path.startswith("/allocations")
        status, said = (204, b"") if without_body else (200, json.dumps(body).encode())
        return PlacementAnswer(self.transport.endpoint, method, path, status, said, "no request id")
