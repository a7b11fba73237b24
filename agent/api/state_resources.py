"""Resources for the agent's own state (health, readiness, metrics), for audits and the reload of
the configuration, and for nodes with their trees and reports. falcon finds a responder by its
method and the suffix of its route, see :func:`agent.api.application.routes`.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict

import falcon
from falcon import Request, Response
from msgspec import UNSET

from agent.api.metrics import CONTENT_TYPE, Metrics, TimedTracker
from agent.api.node_documents import JsonObject, node_records
from agent.api.problem import WaitLimit
from agent.api.service import Service
from agent.model.names import ProviderUuid
from agent.render.page_html import served_policy
from agent.tracker.errors import TrackerError


class HealthResource:
    """/healthz, /readyz and /metrics."""

    def __init__(self, service: Service, metrics: Metrics) -> None:
        self._service, self._metrics = service, metrics

    def on_get(self, _request: Request, response: Response) -> None:
        """Answer 200 if the process works."""
        self._service.check_health()
        response.media = health_document(self._service)

    def on_get_readiness(self, _request: Request, response: Response) -> None:
        """Answer 200 if every node was audited and is well."""
        self._service.check_readiness()
        response.media = health_document(self._service)

    def on_get_metrics(self, _request: Request, response: Response) -> None:
        """Show all metrics."""
        response.content_type = CONTENT_TYPE
        response.data = self._metrics.text()


def health_document(service: Service) -> dict[str, str]:
    """Return the status line, and the state, which is its first word."""
    status = service.status
    return {"state": status.partition(":")[0], "status": status}


_WAIT = re.compile(
    r"(?:^|[,;])\s*wait\s*=\s*\"?([0-9]{1,9})\"?\s*(?:$|[,;])", re.ASCII | re.IGNORECASE
)
# In seconds; a client that waits longer asks again.
LONGEST_WAIT = 300
RETRY_AFTER = "1"


class AuditResource:
    """/v1/audits and /v1/reload. ``room``: places for requests that wait for the end of an audit
    or a reload. Without one, an audit is answered at once with its present state.
    """

    def __init__(self, service: Service, room: WaitLimit) -> None:
        self._service, self._room = service, room

    def on_post_list(self, request: Request, response: Response) -> None:
        """Request an audit."""
        asked = request.context.body
        audit_id = self._service.audits.request(
            () if asked.nodes is UNSET else asked.nodes, dry_run=asked.dry_run
        )
        self.on_get(request, response, audit_id)

    def on_get(self, request: Request, response: Response, id: str) -> None:
        """Show the audit, with its report once it is done; after waiting for it, if the client
        prefers that and there is a place.
        """
        wait = _preferred_wait(request)
        if wait is None:
            audit = self._service.audits.wait_for(id, 0)
        else:
            with self._room.place_if_free() as found:
                audit = self._service.audits.wait_for(id, wait if found else 0)
            if found:
                response.set_header("Preference-Applied", f"wait={wait}")
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

    def on_post_reload(self, _request: Request, response: Response) -> None:
        """Reload the configuration."""
        with self._room.place():
            self._service.reload()
        response.media = health_document(self._service)


def _preferred_wait(request: Request) -> int | None:
    found = _WAIT.search(request.context.header.get("Prefer", ""))
    return min(int(found[1]), LONGEST_WAIT) if found else None


LONGEST = 1000
HTML = "text/html; charset=utf-8"
PAGES_AT_ONCE = 2
# In seconds: so long the second request waits for the page that is being made.
PAGE_PATIENCE = 15.0


class NodeResource:
    """/v1/nodes, with the trees, the pages for a browser, and the results of builds.

    One page is made at a time, because thousands of nodes take seconds; one more request waits for
    its turn, and further ones are refused.
    """

    def __init__(self, service: Service, timed_tracker: TimedTracker) -> None:
        self._service, self._timed_tracker = service, timed_tracker
        self._room = WaitLimit(PAGES_AT_ONCE, "a page of the nodes")
        self._turn = WaitLimit(1, "a page of the nodes", PAGE_PATIENCE)

    def on_get_list(self, request: Request, response: Response) -> None:
        """Show a page of summaries, after ``marker``. They are ordered by uuid, so that no node is
        left out when others disappear.
        """
        query = request.context.query
        limit, marker = query.get("limit", LONGEST), query.get("marker", "")
        rest = [node for node in self._service.nodes() if node["uuid"] > marker]
        more = rest[limit - 1]["uuid"] if len(rest) > limit else None
        response.media = {"nodes": rest[:limit], "next": more}

    def on_get(self, _request: Request, response: Response, uuid: str) -> None:
        """Show the node as its last audit left it, with its records and the monitors' values of
        now.
        """
        readings = [asdict(reading) for reading in self._service.readings]
        response.media = {
            **self._service.node(uuid),
            "records": self._records(uuid),
            "monitors": readings,
        }

    def _records(self, uuid: str) -> JsonObject | None:
        """Return the node's records; None if the tracker cannot show them."""
        try:
            return node_records(self._service.tracker().view(ProviderUuid(uuid)))
        except TrackerError:
            return None

    def on_get_tree(self, _request: Request, response: Response, uuid: str) -> None:
        """Show the providers of the node's tree."""
        response.media = self._service.tree(uuid)

    def on_get_reports(self, request: Request, response: Response) -> None:
        """Show the page of the nodes that are named, of all nodes if none is."""
        self._show_page(request.context.query.get("node", ()), response)

    def on_get_report(self, _request: Request, response: Response, uuid: str) -> None:
        """Show the page of the node."""
        self._show_page((uuid,), response)

    def _show_page(self, wanted: Sequence[str], response: Response) -> None:
        """Answer with the page of the nodes that are ``wanted``, of all if that is empty.

        :raises Busy: other pages are being made.
        :raises UnknownNode: one of ``wanted`` matches no node.
        """
        with self._room.place(), self._turn.place():
            response.data = self._service.report_page(wanted)
        response.content_type = HTML
        for name, value in (
            ("Content-Security-Policy", served_policy()),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cache-Control", "no-store"),
        ):
            response.set_header(name, value)

    def on_post_builds(self, request: Request, response: Response, uuid: str) -> None:
        """Count a build."""
        result = request.context.body.result
        response.media = {
            "failed_builds": self._timed_tracker.run(
                "count-build", lambda tracker: tracker.count_build(ProviderUuid(uuid), result)
            )
        }
