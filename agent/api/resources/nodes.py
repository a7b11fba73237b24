"""Nodes and their trees."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from falcon import Request, Response

from agent.api.documents.node import node_records
from agent.api.documents.records import JsonObject
from agent.api.service import Service
from agent.api.timed_tracker import TimedTracker
from agent.model.names import ProviderUuid
from agent.tracker.errors import TrackerError


class BuildsResource:
    """/v1/nodes/{uuid}/builds."""

    def __init__(self, timed_tracker: TimedTracker) -> None:
        self._timed_tracker = timed_tracker

    def on_post(self, request: Request, response: Response, uuid: str) -> None:
        """Count one."""
        result = request.context.body["result"]
        response.media = {
            "failed_builds": self._timed_tracker.done(
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
    """The items after ``marker``, ``limit`` at most. They come in the order of their keys, so that
    none is left out when others go.
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
        """A page of summaries."""
        response.media = page(
            "nodes", self._service.nodes(), request.context.query, lambda node: str(node["uuid"])
        )


class NodeResource:
    """/v1/nodes/{uuid}."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def on_get(self, _request: Request, response: Response, uuid: str) -> None:
        """The node as its last audit left it, and what is promised on it now."""
        readings = [asdict(one) for one in self._service.readings()]
        response.media = {
            **self._service.node(uuid),
            "records": self._records(uuid),
            "monitors": readings,
        }

    def _records(self, uuid: str) -> JsonObject | None:
        """What is promised on it now; None if nobody can tell."""
        try:
            return node_records(self._service.tracker().view(ProviderUuid(uuid)))
        except TrackerError:
            return None


class TreeResource:
    """/v1/nodes/{uuid}/tree."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def on_get(self, _request: Request, response: Response, uuid: str) -> None:
        """Its providers."""
        response.media = self._service.tree(uuid)
