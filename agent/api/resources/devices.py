"""Resources for PCI devices, and for claims of devices alone."""

import falcon
from falcon import Request, Response
from msgspec import UNSET

from agent.api.metrics import TimedTracker
from agent.api.requests import device_claim
from agent.api.resources.guests import chosen_nodes
from agent.api.resources.instances import claim_answer
from agent.api.service import Service
from agent.model.names import ConsumerUuid, printable
from agent.tracker.claims import allocate_devices
from agent.tracker.errors import UnknownDevice
from agent.tracker.node_state import NodeState
from agent.tracker.stored_state import PlannedChange
from agent.tracker.tracker import Tracker


class DevicesResource:
    """/v1/devices."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def on_get(self, request: Request, response: Response) -> None:
        """Show a page of devices."""
        response.media = self._service.records().devices(request.context.query)


class CleanedDeviceResource:
    """/v1/devices/cleaned."""

    def __init__(self, service: Service, timed_tracker: TimedTracker) -> None:
        self._service, self._timed_tracker = service, timed_tracker

    def on_post(self, request: Request, response: Response) -> None:
        """Record that a device was cleaned, so that guests can have it again."""
        asked = request.context.body
        address = asked.address.lower()

        def work(tracker: Tracker) -> tuple[NodeState, bool]:
            wanted = [] if asked.node is UNSET else [asked.node]
            found = [tracker.view(uuid) for uuid in chosen_nodes(tracker, wanted)]
            found = [state for state in found if len(found) == 1 or address in state.devices]
            if len(found) != 1:
                names = ", ".join(printable(state.node.name) for state in found) or "no node"
                raise UnknownDevice(
                    f"device {printable(address)} is on {names}",
                    "say the node" if found else "see GET /v1/devices for their addresses",
                )
            return found[0], tracker.clean(found[0].node.uuid, address)

        state, changed = self._timed_tracker.run("clean-device", work)
        response.media = {
            "node": state.node.uuid,
            "node_name": printable(state.node.name),
            "address": address,
            "repeated": not changed,
        }


class DeviceClaimsResource:
    """/v1/devices/claims."""

    def __init__(self, service: Service, timed_tracker: TimedTracker) -> None:
        self._service, self._timed_tracker = service, timed_tracker

    def on_post(self, request: Request, response: Response) -> None:
        """Claim devices for an existing guest."""
        wanted = device_claim(request.context.body)
        planned = self._timed_tracker.run(
            "claim-devices", lambda tracker: tracker.claim_devices(wanted)
        )
        response.status = falcon.HTTP_200 if planned.repeated else falcon.HTTP_201
        response.media = claim_answer(self._service, planned)

    def on_delete(self, request: Request, response: Response) -> None:
        """Release the devices that an instance has in one state."""
        query = request.context.query
        instance = ConsumerUuid(query["instance"])

        def work(tracker: Tracker) -> int:
            nodes = self._service.records().places(instance) & set(tracker.nodes())
            return sum(
                tracker.free_devices(node, instance, query["state"]) for node in sorted(nodes)
            )

        response.media = {"released": self._timed_tracker.run("free-devices", work)}


class DeviceClaimResource:
    """/v1/devices/claims/{id}."""

    def __init__(self, service: Service, timed_tracker: TimedTracker) -> None:
        self._service, self._timed_tracker = service, timed_tracker

    def on_delete(self, _request: Request, response: Response, id: str) -> None:
        """Release the claim."""

        def work(tracker: Tracker) -> PlannedChange:
            # The purpose of a claim never changes. Releasing a guest's own claim would release the
            # guest's resources.
            self._service.records().claim(id, "devices")
            return tracker.abort(id)

        planned = self._timed_tracker.run("abort", work)
        response.media = {**self._service.records().claim(id), "repeated": planned.repeated}


class DeviceUseResource:
    """/v1/devices/claims/{id}/allocate."""

    def __init__(self, service: Service, timed_tracker: TimedTracker) -> None:
        self._service, self._timed_tracker = service, timed_tracker

    def on_post(self, _request: Request, response: Response, id: str) -> None:
        """Record that the guest uses the devices."""

        def work(tracker: Tracker) -> PlannedChange:
            self._service.records().claim(id, "devices")
            return tracker.change(id, allocate_devices)

        planned = self._timed_tracker.run("allocate-devices", work)
        response.media = {**self._service.records().claim(id), "repeated": planned.repeated}
