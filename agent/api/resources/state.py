"""Resources for the agent's own state (health, readiness, metrics), for audits, and for the reload
of the configuration.
"""

import re

import falcon
from falcon import Request, Response
from msgspec import UNSET

from agent.api.metrics import CONTENT_TYPE, Metrics
from agent.api.service import Audit, Service
from agent.api.wait_limit import WaitLimit


def health_document(service: Service) -> dict[str, str]:
    """Return the status line, and the state, which is its first word."""
    status = service.status()
    return {"state": status.partition(":")[0], "status": status}


class HealthResource:
    """/healthz."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def on_get(self, _request: Request, response: Response) -> None:
        """Answer 200 if the process works."""
        self._service.check_health()
        response.media = health_document(self._service)


class ReadinessResource:
    """/readyz."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def on_get(self, _request: Request, response: Response) -> None:
        """Answer 200 if every node was audited and is well."""
        self._service.check_readiness()
        response.media = health_document(self._service)


class MetricsResource:
    """/metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def on_get(self, _request: Request, response: Response) -> None:
        """Show all metrics."""
        response.content_type = CONTENT_TYPE
        response.data = self._metrics.text()


_WAIT = re.compile(
    r"(?:^|[,;])\s*wait\s*=\s*\"?([0-9]{1,9})\"?\s*(?:$|[,;])", re.ASCII | re.IGNORECASE
)
# In seconds; a client that waits longer asks again.
LONGEST_WAIT = 300
RETRY_AFTER = "1"


class AuditWaiter:
    """Answers with audits, and lets a limited number of clients wait for their end. The others are
    answered at once with the audit's present state.
    """

    def __init__(self, service: Service, room: WaitLimit) -> None:
        self._service, self._room = service, room

    def answer(self, request: Request, response: Response, audit_id: str) -> None:
        """Answer with the audit, after waiting for it if the client prefers that and there is a
        place.
        """
        wait = _preferred_wait(request)
        if wait is None:
            _show(self._service.audit(audit_id, 0), response)
            return
        with self._room.place_if_free() as found:
            audit = self._service.audit(audit_id, wait if found else 0)
        if found:
            response.set_header("Preference-Applied", f"wait={wait}")
        _show(audit, response)


class AuditsResource:
    """/v1/audits."""

    def __init__(self, service: Service, waiting: AuditWaiter) -> None:
        self._service, self._waiting = service, waiting

    def on_post(self, request: Request, response: Response) -> None:
        """Request an audit."""
        asked = request.context.body
        audit_id = self._service.request_audit(
            () if asked.nodes is UNSET else asked.nodes, dry_run=asked.dry_run
        )
        self._waiting.answer(request, response, audit_id)


class AuditResource:
    """/v1/audits/{id}."""

    def __init__(self, waiting: AuditWaiter) -> None:
        self._waiting = waiting

    def on_get(self, request: Request, response: Response, id: str) -> None:
        """Show the audit, with its report once it is done."""
        self._waiting.answer(request, response, id)


class ReloadResource:
    """/v1/reload."""

    def __init__(self, service: Service, room: WaitLimit) -> None:
        self._service, self._room = service, room

    def on_post(self, _request: Request, response: Response) -> None:
        """Reload the configuration."""
        with self._room.place():
            self._service.reload()
        response.media = health_document(self._service)


def _preferred_wait(request: Request) -> int | None:
    found = _WAIT.search(request.context.header.get("Prefer", ""))
    return min(int(found[1]), LONGEST_WAIT) if found else None


def _show(audit: Audit, response: Response) -> None:
    place = f"/v1/audits/{audit.id}"
    if audit.report is None:
        response.status = falcon.HTTP_202
        response.set_header("Location", place)
        response.set_header("Retry-After", RETRY_AFTER)
        response.media = {"id": audit.id, "state": audit.state}
    else:
        response.set_header("Content-Location", place)
        response.content_type = falcon.MEDIA_JSON
        response.data = audit.report
