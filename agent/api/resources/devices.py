"""PCI devices, and claims of nothing but devices."""

import falcon
from falcon import Request, Response

from agent.api.desk import Desk
from agent.api.documents.asked import device_claim
from agent.api.service import Service
from agent.model.names import ConsumerUuid
from agent.tracker.known import Planned
from agent.tracker.tracker import Tracker


class Devices:
    """/v1/devices."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def on_get(self, request: Request, response: Response) -> None:
        """A page."""
        response.media = self._service.records().devices(request.context.query)


class DeviceClaims:
    """/v1/devices/claims."""

    def __init__(self, service: Service, desk: Desk) -> None:
        self._service, self._desk = service, desk

    def on_post(self, request: Request, response: Response) -> None:
        """Promise devices to a guest that is there."""
        wanted = device_claim(request.context.body)
        planned = self._desk.done("claim-devices", lambda tracker: tracker.claim_devices(wanted))
        response.status = falcon.HTTP_200 if planned.repeated else falcon.HTTP_201
        response.media = {**self._service.records().claim(wanted.id), "repeated": planned.repeated}

    def on_delete(self, request: Request, response: Response) -> None:
        """Give back what an instance has in one state."""
        query = request.context.query
        instance = ConsumerUuid(query["instance"])

        def work(tracker: Tracker) -> int:
            nodes = self._service.records().places(instance) & set(tracker.nodes())
            return sum(tracker.free_devices(node, instance, query["state"]) for node in sorted(nodes))

        response.media = {"released": self._desk.done("free-devices", work)}


class OneDeviceClaim:
    """/v1/devices/claims/{id}."""

    def __init__(self, service: Service, desk: Desk) -> None:
        self._service, self._desk = service, desk

    def on_delete(self, _request: Request, response: Response, id: str) -> None:
        """Give the devices back."""

        def work(tracker: Tracker) -> Planned:
            # What a claim is for never changes; the same of a guest's claim would give the guest's room away.
            self._service.records().claim(id, "devices")
            return tracker.abort(id)

        planned = self._desk.done("abort", work)
        response.media = {**self._service.records().claim(id), "repeated": planned.repeated}


class DeviceUse:
    """/v1/devices/claims/{id}/allocate."""

    def __init__(self, service: Service, desk: Desk) -> None:
        self._service, self._desk = service, desk

    def on_post(self, _request: Request, response: Response, id: str) -> None:
        """The guest uses them now."""

        def work(tracker: Tracker) -> Planned:
            self._service.records().claim(id, "devices")
            return tracker.allocate_devices(id)

        planned = self._desk.done("allocate-devices", work)
        response.media = {**self._service.records().claim(id), "repeated": planned.repeated}
