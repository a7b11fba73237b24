"""Moves: resizes, migrations and evacuations, from the room at the destination to their end."""

from collections.abc import Callable, Mapping

import falcon
from falcon import Request, Response

from agent.api.documents.requests import move_claim
from agent.api.metrics import TrackerOperation
from agent.api.service import Service
from agent.api.timed_tracker import TimedTracker
from agent.tracker.stored_state import PlannedChange
from agent.tracker.tracker import Tracker


class MigrationsResource:
    """/v1/migrations."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def on_get(self, request: Request, response: Response) -> None:
        """A page."""
        response.media = self._service.records().migrations(request.context.query)


# The last word of the path, and what it has the tracker do.
STEPS: Mapping[str, tuple[TrackerOperation, Callable[[Tracker, str], PlannedChange]]] = {
    "confirm": ("confirm", Tracker.confirm),
    "revert": ("revert", Tracker.revert),
    "abort": ("abort-move", Tracker.abort),
    "finish": ("finish", Tracker.finish),
}


class MovesResource:
    """/v1/moves."""

    def __init__(self, service: Service, timed_tracker: TimedTracker) -> None:
        self._service, self._timed_tracker = service, timed_tracker

    def on_post(self, request: Request, response: Response) -> None:
        """Promise a guest that moves its room."""
        wanted = move_claim(request.context.body)
        planned = self._timed_tracker.done("claim-move", lambda tracker: tracker.claim_move(wanted))
        response.status = falcon.HTTP_200 if planned.repeated else falcon.HTTP_201
        response.media = {**self._service.records().move(wanted.id), "repeated": planned.repeated}


class MoveResource:
    """/v1/moves/{id}."""

    def __init__(self, service: Service, timed_tracker: TimedTracker) -> None:
        self._service, self._timed_tracker = service, timed_tracker

    def on_get(self, _request: Request, response: Response, id: str) -> None:
        """The move."""
        response.media = self._service.records().move(id)

    def on_patch(self, request: Request, response: Response, id: str) -> None:
        """Take note of how far it has come."""
        status = request.context.body["status"]
        planned = self._timed_tracker.done(
            "progress", lambda tracker: tracker.progress(_id_of(self._service, id), status)
        )
        response.media = {**self._service.records().move(id), "repeated": planned.repeated}


class DroppedHalfResource:
    """/v1/moves/{id}/drop."""

    def __init__(self, service: Service, timed_tracker: TimedTracker) -> None:
        self._service, self._timed_tracker = service, timed_tracker

    def on_post(self, request: Request, response: Response, id: str) -> None:
        """Give one half back."""
        half = request.context.body["half"]
        planned = self._timed_tracker.done(
            "drop", lambda tracker: tracker.drop_half(_id_of(self._service, id), half)
        )
        response.media = {**self._service.records().move(id), "repeated": planned.repeated}


class MoveStepResource:
    """/v1/moves/{id}/``word``."""

    def __init__(self, service: Service, timed_tracker: TimedTracker, word: str) -> None:
        self._service, self._timed_tracker = service, timed_tracker
        self._operation, self._work = STEPS[word]

    def on_post(self, _request: Request, response: Response, id: str) -> None:
        """Take the move there."""

        planned = self._timed_tracker.done(
            self._operation, lambda tracker: self._work(tracker, _id_of(self._service, id))
        )
        response.media = {**self._service.records().move(id), "repeated": planned.repeated}


def _id_of(service: Service, given: str) -> str:
    """The id of the move that is called by that or by its migration's uuid.

    :raises UnknownClaim: there is none. What a claim is for never changes; the same of a guest's
        claim would give the guest's room away.
    """
    return str(service.records().claim(given, "move")["id"])
