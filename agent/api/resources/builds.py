"""Builds on a node that have failed or succeeded."""

from falcon import Request, Response

from agent.api.desk import Desk
from agent.model.names import ProviderUuid


class Builds:
    """/v1/nodes/{uuid}/builds."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def on_post(self, request: Request, response: Response, uuid: str) -> None:
        """Count one."""
        result = request.context.body["result"]
        response.media = {"failed_builds": self._desk.done("count-build", lambda tracker: tracker.count_build(ProviderUuid(uuid), result))}
