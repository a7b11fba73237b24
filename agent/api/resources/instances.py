"""Resources for claims of instances, for instances and their allocations in Placement, and for
moves (resizes, migrations, evacuations) from the claim at the destination to the end.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import falcon
from falcon import Request, Response

from agent.api.documents.node import JsonObject, instance_document
from agent.api.metrics import TimedTracker, TrackerOperation
from agent.api.record_views import made_claim_document
from agent.api.requests import instance_claim, instance_update, move_claim
from agent.api.service import Service
from agent.api.wait_limit import WaitLimit
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.placement.allocations.change import delete_forced, remove_from_one
from agent.placement.allocations.checks import ConsumerNotFound, consumer_uuid
from agent.tracker import moves
from agent.tracker.stored_state import PlannedChange, StoredState
from agent.tracker.tracker import Tracker


class ClaimsResource:
    """/v1/claims."""

    def __init__(self, service: Service, timed_tracker: TimedTracker) -> None:
        self._service, self._timed_tracker = service, timed_tracker

    def on_get(self, request: Request, response: Response) -> None:
        """Show a page of open claims."""
        response.media = self._service.records().claims(request.context.query)

    def on_post(self, request: Request, response: Response) -> None:
        """Claim a node's resources for a new guest."""
        wanted = instance_claim(request.context.body)
        planned = self._timed_tracker.run("claim", lambda tracker: tracker.claim(wanted))
        response.status = falcon.HTTP_200 if planned.repeated else falcon.HTTP_201
        response.media = claim_answer(self._service, planned)


def claim_answer(service: Service, planned: PlannedChange) -> JsonObject:
    """Return the answer to a request for a claim. It is read from the store only if it was made
    before.
    """
    name = service.tracker().name_in_memory(planned.claim.node)
    document = made_claim_document(planned, name) or service.records().claim(planned.claim.id)
    return {**document, "repeated": planned.repeated}


class ClaimResource:
    """/v1/claims/{id}."""

    def __init__(self, service: Service, timed_tracker: TimedTracker) -> None:
        self._service, self._timed_tracker = service, timed_tracker

    def on_get(self, _request: Request, response: Response, id: str) -> None:
        """Show the claim."""
        response.media = self._service.records().claim(id)

    def on_delete(self, _request: Request, response: Response, id: str) -> None:
        """Release the claim."""
        planned = self._timed_tracker.run("abort", lambda tracker: tracker.abort(id))
        response.media = {**self._service.records().claim(id), "repeated": planned.repeated}


class InstancesResource:
    """/v1/instances."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def on_get(self, request: Request, response: Response) -> None:
        """Show a page of instances."""
        response.media = self._service.records().instances(request.context.query)


class InstanceResource:
    """/v1/instances/{uuid}."""

    def __init__(self, service: Service, timed_tracker: TimedTracker) -> None:
        self._service, self._timed_tracker = service, timed_tracker

    def on_get(self, _request: Request, response: Response, uuid: str) -> None:
        """Show the instance."""
        _show(response, self._service.records().instance(uuid))

    def on_patch(self, request: Request, response: Response, uuid: str) -> None:
        """Update the instance's record."""
        update = instance_update(
            request.context.body, int(request.context.header["If-Match"].strip('"'))
        )
        _show(
            response,
            instance_document(
                self._timed_tracker.run(
                    "update", lambda tracker: tracker.update(ConsumerUuid(uuid), update)
                )
            ),
        )


class AllocationResource:
    """/v1/instances/{uuid}/allocation."""

    def __init__(self, service: Service, timed_tracker: TimedTracker, room: WaitLimit) -> None:
        self._service, self._timed_tracker, self._room = service, timed_tracker, room

    def on_delete(self, request: Request, response: Response, uuid: str) -> None:
        """Remove the instance's allocation of one of this host's nodes, or of all providers. No
        allocation is no error.
        """
        query = request.context.query

        def work(tracker: Tracker) -> None:
            client, consumer = self._service.placement(), consumer_uuid(uuid)
            if query["scope"] == "all":
                delete_forced(client, uuid)
                tracker.note_nothing_left(consumer)
                return
            nodes = tracker.nodes()
            if "node" in query:
                nodes = [tracker.own(ProviderUuid(query["node"]))]
            with suppress(ConsumerNotFound):
                remove_from_one(client, uuid, nodes)
            tracker.note_nothing_left(consumer, nodes)

        with self._room.place():
            self._timed_tracker.run("remove-allocation", work)
        response.status = falcon.HTTP_204


def _show(response: Response, document: JsonObject) -> None:
    response.set_header("ETag", f'"{document["version"]}"')
    response.media = document


class MigrationsResource:
    """/v1/migrations."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def on_get(self, request: Request, response: Response) -> None:
        """Show a page of migrations."""
        response.media = self._service.records().migrations(request.context.query)


# From the last word of the path to the tracker's operation.
STEPS: Mapping[str, tuple[TrackerOperation, Callable[[StoredState, float], PlannedChange]]] = {
    "confirm": ("confirm", moves.confirm),
    "revert": ("revert", moves.revert),
    "abort": ("abort-move", moves.abort),
    "finish": ("finish", moves.finish),
}


class MovesResource:
    """/v1/moves."""

    def __init__(self, service: Service, timed_tracker: TimedTracker) -> None:
        self._service, self._timed_tracker = service, timed_tracker

    def on_post(self, request: Request, response: Response) -> None:
        """Claim a node's resources for a guest that moves."""
        wanted = move_claim(request.context.body)
        planned = self._timed_tracker.run("claim-move", lambda tracker: tracker.claim_move(wanted))
        response.status = falcon.HTTP_200 if planned.repeated else falcon.HTTP_201
        response.media = {**self._service.records().move(wanted.id), "repeated": planned.repeated}


class MoveResource:
    """/v1/moves/{id}."""

    def __init__(self, service: Service, timed_tracker: TimedTracker) -> None:
        self._service, self._timed_tracker = service, timed_tracker

    def on_get(self, _request: Request, response: Response, id: str) -> None:
        """Show the move."""
        response.media = self._service.records().move(id)

    def on_patch(self, request: Request, response: Response, id: str) -> None:
        """Record the status that the move has reached."""
        status = request.context.body.status
        planned = self._timed_tracker.run(
            "progress",
            lambda tracker: tracker.change(
                _id_of(self._service, id), partial(moves.progress, status=status)
            ),
        )
        response.media = {**self._service.records().move(id), "repeated": planned.repeated}


class DroppedHalfResource:
    """/v1/moves/{id}/drop."""

    def __init__(self, service: Service, timed_tracker: TimedTracker) -> None:
        self._service, self._timed_tracker = service, timed_tracker

    def on_post(self, request: Request, response: Response, id: str) -> None:
        """Release one half of the move."""
        half = request.context.body.half
        planned = self._timed_tracker.run(
            "drop",
            lambda tracker: tracker.change(
                _id_of(self._service, id), partial(moves.drop_half, half=half)
            ),
        )
        response.media = {**self._service.records().move(id), "repeated": planned.repeated}


class MoveStepResource:
    """/v1/moves/{id}/``word``, for each word of :data:`STEPS`."""

    def __init__(self, service: Service, timed_tracker: TimedTracker, word: str) -> None:
        self._service, self._timed_tracker = service, timed_tracker
        self._operation, self._plan = STEPS[word]

    def on_post(self, _request: Request, response: Response, id: str) -> None:
        """Confirm, revert, abort or finish the move."""

        planned = self._timed_tracker.run(
            self._operation, lambda tracker: tracker.change(_id_of(self._service, id), self._plan)
        )
        response.media = {**self._service.records().move(id), "repeated": planned.repeated}


def _id_of(service: Service, given: str) -> str:
    """Return the id of a move, given its id or its migration's uuid.

    :raises UnknownClaim: there is none, or the claim is not for a move: its purpose never changes,
        and releasing a guest's own claim would release the guest's resources.
    """
    return str(service.records().claim(given, "move")["id"])
