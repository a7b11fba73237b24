"""Resources for claims of instances, for instances, and for their allocations in Placement."""

import falcon
from falcon import Request, Response

from agent.api.documents.records import JsonObject, instance_document
from agent.api.documents.requests import instance_claim, instance_update
from agent.api.service import Service
from agent.api.timed_tracker import TimedTracker
from agent.api.wait_limit import WaitLimit
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.placement.allocations.change import delete_forced, remove_from_one
from agent.placement.allocations.errors import ConsumerNotFound
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
        response.media = {**self._service.records().claim(wanted.id), "repeated": planned.repeated}


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
            client = self._service.placement()
            if query["scope"] == "all":
                delete_forced(client, uuid)
                return
            nodes = tracker.nodes()
            if "node" in query:
                nodes = [tracker.own(ProviderUuid(query["node"]))]
            try:
                remove_from_one(client, uuid, nodes)
            except ConsumerNotFound:
                return

        with self._room.place():
            self._timed_tracker.run("remove-allocation", work)
        response.status = falcon.HTTP_204


def _show(response: Response, document: JsonObject) -> None:
    response.set_header("ETag", f'"{document["version"]}"')
    response.media = document
