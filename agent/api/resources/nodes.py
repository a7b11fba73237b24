"""Resources for nodes, their trees, and the results of builds on them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from falcon import Request, Response

from agent.api.documents.node import JsonObject, node_records
from agent.api.metrics import TimedTracker
from agent.api.service import ReportPage, Service
from agent.api.wait_limit import WaitLimit
from agent.model.names import ProviderUuid
from agent.tracker.errors import TrackerError


class BuildsResource:
    """/v1/nodes/{uuid}/builds."""

    def __init__(self, timed_tracker: TimedTracker) -> None:
        self._timed_tracker = timed_tracker

    def on_post(self, request: Request, response: Response, uuid: str) -> None:
        """Count a build."""
        result = request.context.body.result
        response.media = {
            "failed_builds": self._timed_tracker.run(
                "count-build", lambda tracker: tracker.count_build(ProviderUuid(uuid), result)
            )
        }


LONGEST = 1000


def page(
    name: str,
    items: Sequence[Mapping[str, Any]],
    query: Mapping[str, Any],
    key: Callable[[Mapping[str, Any]], str],
) -> dict[str, Any]:
    """Return the page of ``items`` after ``marker``, ``limit`` items at most. ``items`` are ordered
    by their keys, so that no item is left out when others disappear.
    """
    limit, marker = query.get("limit", LONGEST), query.get("marker")
    rest = [item for item in items if marker is None or key(item) > marker]
    shown = rest[:limit]
    return {name: shown, "next": key(shown[-1]) if len(rest) > limit else None}


class NodesResource:
    """/v1/nodes."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def on_get(self, request: Request, response: Response) -> None:
        """Show a page of summaries."""
        response.media = page(
            "nodes", self._service.nodes(), request.context.query, lambda node: str(node["uuid"])
        )


class NodeResource:
    """/v1/nodes/{uuid}."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def on_get(self, _request: Request, response: Response, uuid: str) -> None:
        """Show the node as its last audit left it, with its records and the monitors' values of
        now.
        """
        readings = [asdict(reading) for reading in self._service.readings()]
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


HTML = "text/html; charset=utf-8"
PAGES_AT_ONCE = 2
# In seconds: so long the second request waits for the page that is being made.
PAGE_PATIENCE = 15.0


class PageMaker:
    """Answers with pages for a browser. One page is made at a time, because thousands of nodes take
    seconds; one more request waits for its turn, and further ones are refused.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._room = WaitLimit(PAGES_AT_ONCE, "a page of the nodes")
        self._turn = WaitLimit(1, "a page of the nodes", PAGE_PATIENCE)

    def answer(self, wanted: Sequence[str], response: Response) -> None:
        """Answer with the page of the nodes that are ``wanted``, of all if that is empty.

        :raises Busy: other pages are being made.
        :raises UnknownNode: one of ``wanted`` matches no node.
        """
        with self._room.place(), self._turn.place():
            page = self._service.report_page(wanted)
        _show_page(page, response)


def _show_page(page: ReportPage, response: Response) -> None:
    response.content_type, response.data = HTML, page.html
    for name, value in (
        ("Content-Security-Policy", page.policy),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        ("Cache-Control", "no-store"),
    ):
        response.set_header(name, value)


class ReportResource:
    """/v1/report."""

    def __init__(self, pages: PageMaker) -> None:
        self._pages = pages

    def on_get(self, request: Request, response: Response) -> None:
        """Show the page of the nodes."""
        self._pages.answer(request.context.query.get("node", ()), response)


class NodeReportResource:
    """/v1/nodes/{uuid}/report."""

    def __init__(self, pages: PageMaker) -> None:
        self._pages = pages

    def on_get(self, _request: Request, response: Response, uuid: str) -> None:
        """Show the page of the node."""
        self._pages.answer((uuid,), response)


class TreeResource:
    """/v1/nodes/{uuid}/tree."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def on_get(self, _request: Request, response: Response, uuid: str) -> None:
        """Show the providers of the node's tree."""
        response.media = self._service.tree(uuid)
