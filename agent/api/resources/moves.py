"""Moves: resizes, migrations and evacuations, from the room at the destination to their end."""

from collections.abc import Callable, Mapping

import falcon
from falcon import Request, Response

from agent.api.desk import Desk
from agent.api.documents.asked import move_claim
from agent.api.metrics import TrackerOperation
from agent.api.service import Service
from agent.tracker.known import Planned
from agent.tracker.tracker import Tracker

# The last word of the path, and what it has the tracker do.
STEPS: Mapping[str, tuple[TrackerOperation, Callable[[Tracker, str], Planned]]] = {
    "confirm": ("confirm", Tracker.confirm),
    "revert": ("revert", Tracker.revert),
    "abort": ("abort-move", Tracker.abort),
    "finish": ("finish", Tracker.finish),
}


class Moves:
    """/v1/moves."""

    def __init__(self, service: Service, desk: Desk) -> None:
        self._service, self._desk = service, desk

    def on_post(self, request: Request, response: Response) -> None:
        """Promise a guest that moves its room."""
        wanted = move_claim(request.context.body)
        planned = self._desk.done("claim-move", lambda tracker: tracker.claim_move(wanted))
        response.status = falcon.HTTP_200 if planned.repeated else falcon.HTTP_201
        response.media = {**self._service.records().move(wanted.id), "repeated": planned.repeated}


class OneMove:
    """/v1/moves/{id}."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def on_get(self, _request: Request, response: Response, id: str) -> None:
        """The move."""
        response.media = self._service.records().move(id)


class Step:
    """/v1/moves/{id}/``word``."""

    def __init__(self, service: Service, desk: Desk, word: str) -> None:
        self._service, self._desk = service, desk
        self._operation, self._work = STEPS[word]

    def on_post(self, _request: Request, response: Response, id: str) -> None:
        """Take the move there."""

        def work(tracker: Tracker) -> Planned:
            # What a claim is for never changes; the same of a guest's claim would give the guest's room away.
            self._service.records().claim(id, "move")
            return self._work(tracker, id)

        planned = self._desk.done(self._operation, work)
        response.media = {**self._service.records().move(id), "repeated": planned.repeated}
