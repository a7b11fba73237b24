"""Claims of room for new guests; and every other claim, by its id."""

import falcon
from falcon import Request, Response

from agent.api.timed_tracker import TimedTracker
from agent.api.documents.requests import instance_claim
from agent.api.service import Service


class ClaimsResource:
    """/v1/claims."""

    def __init__(self, service: Service, timed_tracker: TimedTracker) -> None:
        self._service, self._timed_tracker = service, timed_tracker

    def on_get(self, request: Request, response: Response) -> None:
        """A page of those that are open."""
        response.media = self._service.records().claims(request.context.query)

    def on_post(self, request: Request, response: Response) -> None:
        """Promise a new guest its room."""
        wanted = instance_claim(request.context.body)
        planned = self._timed_tracker.done("claim", lambda tracker: tracker.claim(wanted))
        response.status = falcon.HTTP_200 if planned.repeated else falcon.HTTP_201
        response.media = {**self._service.records().claim(wanted.id), "repeated": planned.repeated}


class ClaimResource:
    """/v1/claims/{id}."""

    def __init__(self, service: Service, timed_tracker: TimedTracker) -> None:
        self._service, self._timed_tracker = service, timed_tracker

    def on_get(self, _request: Request, response: Response, id: str) -> None:
        """The claim."""
        response.media = self._service.records().claim(id)

    def on_delete(self, _request: Request, response: Response, id: str) -> None:
        """Give it back."""
        planned = self._timed_tracker.done("abort", lambda tracker: tracker.abort(id))
        response.media = {**self._service.records().claim(id), "repeated": planned.repeated}
