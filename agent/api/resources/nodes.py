"""Nodes and their trees."""

from dataclasses import asdict

from falcon import Request, Response

from agent.api.documents.node import node_records
from agent.api.documents.records import JsonObject
from agent.api.resources.pages import page
from agent.api.service import Service
from agent.model.names import ProviderUuid
from agent.tracker.errors import TrackerError


class NodesResource:
    """/v1/nodes."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def on_get(self, request: Request, response: Response) -> None:
        """A page of summaries."""
        response.media = page("nodes", self._service.nodes(), request.context.query, lambda node: str(node["uuid"]))


class NodeResource:
    """/v1/nodes/{uuid}."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def on_get(self, _request: Request, response: Response, uuid: str) -> None:
        """The node as its last audit left it, and what is promised on it now."""
        readings = [asdict(one) for one in self._service.readings()]
        response.media = {**self._service.node(uuid), "records": self._records(uuid), "monitors": readings}

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
