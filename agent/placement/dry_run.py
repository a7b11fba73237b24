"""Requests that write, kept for showing; and for a dry run, kept instead of sent."""

import json
from dataclasses import dataclass
from typing import Any

from agent.placement.transport import Exchange, PlacementAnswer, Transport


@dataclass(frozen=True, slots=True)
class Write:
    """One request that is no GET. ``status`` is ``None`` if it was not sent."""

    method: str
    path: str
    version: str | None
    body: Any
    status: int | None


class RecordingExchange(Exchange):
    """Keeps every write that was answered. In a ``rehearsal`` nothing but GETs is sent, and every
    write is taken to succeed.

    What is read after a rehearsed write is as before it: a rehearsal is for operations that decide
    before they write.
    """

    def __init__(self, transport: Transport, request_id: str, *, rehearsal: bool) -> None:
        super().__init__(transport, request_id)
        self.rehearsal = rehearsal
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
        """As of every exchange."""
        if method == "GET":
            return super().send(method, path, version, body, timeout, patient=patient)
        answer = (
            self._imagined(method, path, body)
            if self.rehearsal
            else super().send(method, path, version, body, timeout)
        )
        self.writes.append(
            Write(method, path, version, body, None if self.rehearsal else answer.status)
        )
        return answer

    def _imagined(self, method: str, path: str, body: Any) -> PlacementAnswer:
        """The answer of a Placement that finds nothing wrong."""
        without_body = method == "DELETE" or path.startswith("/allocations")
        status, said = (204, b"") if without_body else (200, json.dumps(body).encode())
        return PlacementAnswer(self.transport.endpoint, method, path, status, said, "no request id")
