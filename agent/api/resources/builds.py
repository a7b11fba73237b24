"""Builds on a node that have failed or succeeded."""

from falcon import Request, Response

from agent.api.timed_tracker import TimedTracker
from agent.model.names import ProviderUuid


class BuildsResource:
    """/v1/nodes/{uuid}/builds."""

    def __init__(self, timed_tracker: TimedTracker) -> None:
        self._timed_tracker = timed_tracker

    def on_post(self, request: Request, response: Response, uuid: str) -> None:
        """Count one."""
        result = request.context.body["result"]
        response.media = {"failed_builds": self._timed_tracker.done("count-build", lambda tracker: tracker.count_build(ProviderUuid(uuid), result))}
