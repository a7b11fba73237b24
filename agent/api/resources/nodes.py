"""Nodes and their trees."""

from falcon import Request, Response

from agent.api.resources.pages import page
from agent.api.service import Service


class Nodes:
    """/v1/nodes."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def on_get(self, request: Request, response: Response) -> None:
        """A page of summaries."""
        response.media = page("nodes", self._service.nodes(), request.context.query, lambda node: str(node["uuid"]))


class Node:
    """/v1/nodes/{uuid}."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def on_get(self, _request: Request, response: Response, uuid: str) -> None:
        """The node as its last audit left it."""
        response.media = self._service.node(uuid)


class Tree:
    """/v1/nodes/{uuid}/tree."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def on_get(self, _request: Request, response: Response, uuid: str) -> None:
        """Its providers."""
        response.media = self._service.tree(uuid)
