"""Resources for the records: claims, moves, devices, guests, instances and their allocations in
Placement. falcon finds a responder by its method and the suffix of its route, see
:func:`agent.api.application.routes`.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial

import falcon
from falcon import Request, Response
from msgspec import UNSET

from agent.api.metrics import TimedTracker, TrackerOperation
from agent.api.node_documents import JsonObject, node_guests, node_without_guests
from agent.api.problem import WaitLimit
from agent.api.record_views import made_claim_document
from agent.api.requests import device_claim, instance_claim, instance_update, move_claim
from agent.api.service import Service
from agent.errors import AgentError
from agent.model.names import ConsumerUuid, ProviderUuid, choose_nodes, printable
from agent.placement.allocations.change import delete_forced, remove_from_one
from agent.placement.allocations.checks import ConsumerNotFound, consumer_uuid
from agent.tracker import moves
from agent.tracker.claims import allocate_devices, check_ready
from agent.tracker.domains import GuestImport
from agent.tracker.errors import UnknownDevice, UnknownNode
from agent.tracker.node_state import NodeState
from agent.tracker.stored_state import PlannedChange, StoredState
from agent.tracker.tracker import Tracker

# From the last word of the path of a move to the tracker's operation.
STEPS: Mapping[str, tuple[TrackerOperation, Callable[[StoredState, float], PlannedChange]]] = {
    "confirm": ("confirm", moves.confirm),
    "revert": ("revert", moves.revert),
    "abort": ("abort-move", moves.abort),
    "finish": ("finish", moves.finish),
}


class RecordResource:
    """A resource that shows and changes records."""

    def __init__(self, service: Service, timed_tracker: TimedTracker) -> None:
        self._service, self._timed_tracker = service, timed_tracker

    def _claim_made(self, planned: PlannedChange, response: Response) -> None:
        """Answer a request for a claim. The claim is read from the store only if it was made
        before.
        """
        claim = planned.claim
        made = made_claim_document(planned, self._service.tracker().name_in_memory(claim.node))
        response.status = falcon.HTTP_200 if planned.repeated else falcon.HTTP_201
        response.media = {
            **(made or self._service.records().claim(claim.id)),
            "repeated": planned.repeated,
        }


class ClaimResource(RecordResource):
    """/v1/claims."""

    def on_get_list(self, request: Request, response: Response) -> None:
        """Show a page of open claims."""
        response.media = self._service.records().claims(request.context.query)

    def on_post_list(self, request: Request, response: Response) -> None:
        """Claim a node's resources for a new guest."""
        wanted = instance_claim(request.context.body)
        planned = self._timed_tracker.run("claim", lambda tracker: tracker.claim(wanted))
        self._claim_made(planned, response)

    def on_get(self, _request: Request, response: Response, id: str) -> None:
        """Show the claim."""
        response.media = self._service.records().claim(id)

    def on_delete(self, _request: Request, response: Response, id: str) -> None:
        """Release the claim."""
        planned = self._timed_tracker.run("abort", lambda tracker: tracker.abort(id))
        response.media = {**self._service.records().claim(id), "repeated": planned.repeated}


class DeviceResource(RecordResource):
    """/v1/devices: PCI devices, and claims of devices alone."""

    def on_get_list(self, request: Request, response: Response) -> None:
        """Show a page of devices."""
        response.media = self._service.records().devices(request.context.query)

    def on_post_cleaned(self, request: Request, response: Response) -> None:
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

    def on_post_claims(self, request: Request, response: Response) -> None:
        """Claim devices for an existing guest."""
        wanted = device_claim(request.context.body)
        planned = self._timed_tracker.run(
            "claim-devices", lambda tracker: tracker.claim_devices(wanted)
        )
        self._claim_made(planned, response)

    def on_delete_claims(self, request: Request, response: Response) -> None:
        """Release the devices that an instance has in one state."""
        query = request.context.query
        instance = ConsumerUuid(query["instance"])

        def work(tracker: Tracker) -> int:
            nodes = self._service.records().places(instance) & set(tracker.nodes())
            return sum(
                tracker.free_devices(node, instance, query["state"]) for node in sorted(nodes)
            )

        response.media = {"released": self._timed_tracker.run("free-devices", work)}

    def on_delete_claim(self, _request: Request, response: Response, id: str) -> None:
        """Release the claim."""
        self._change(response, id, "abort", lambda tracker: tracker.abort(id))

    def on_post_use(self, _request: Request, response: Response, id: str) -> None:
        """Record that the guest uses the devices."""
        self._change(
            response, id, "allocate-devices", lambda tracker: tracker.change(id, allocate_devices)
        )

    def _change(
        self,
        response: Response,
        id: str,
        operation: TrackerOperation,
        change: Callable[[Tracker], PlannedChange],
    ) -> None:
        def work(tracker: Tracker) -> PlannedChange:
            # The purpose of a claim never changes. Releasing a guest's own claim would release the
            # guest's resources.
            self._service.records().claim(id, "devices")
            return change(tracker)

        planned = self._timed_tracker.run(operation, work)
        response.media = {**self._service.records().claim(id), "repeated": planned.repeated}


class MoveResource(RecordResource):
    """/v1/moves: resizes, migrations and evacuations, from the claim at the destination to the
    end; and the list of migrations.
    """

    def on_get_migrations(self, request: Request, response: Response) -> None:
        """Show a page of migrations."""
        response.media = self._service.records().migrations(request.context.query)

    def on_post_list(self, request: Request, response: Response) -> None:
        """Claim a node's resources for a guest that moves."""
        wanted = move_claim(request.context.body)
        planned = self._timed_tracker.run("claim-move", lambda tracker: tracker.claim_move(wanted))
        response.status = falcon.HTTP_200 if planned.repeated else falcon.HTTP_201
        response.media = {**self._service.records().move(wanted.id), "repeated": planned.repeated}

    def on_get(self, _request: Request, response: Response, id: str) -> None:
        """Show the move."""
        response.media = self._service.records().move(id)

    def on_patch(self, request: Request, response: Response, id: str) -> None:
        """Record the status that the move has reached."""
        status = request.context.body.status
        self._change(response, id, "progress", partial(moves.progress, status=status))

    def on_post_drop(self, request: Request, response: Response, id: str) -> None:
        """Release one half of the move."""
        half = request.context.body.half
        self._change(response, id, "drop", partial(moves.drop_half, half=half))

    def on_post_step(self, request: Request, response: Response, id: str) -> None:
        """Confirm, revert, abort or finish the move, as the last word of the path says."""
        self._change(response, id, *STEPS[request.path.rpartition("/")[2]])

    def _change(
        self,
        response: Response,
        id: str,
        operation: TrackerOperation,
        plan: Callable[[StoredState, float], PlannedChange],
    ) -> None:
        """``id``: the move's, or its migration's uuid.

        :raises UnknownClaim: there is none, or the claim is not for a move: its purpose never
            changes, and releasing a guest's own claim would release the guest's resources.
        """

        def work(tracker: Tracker) -> PlannedChange:
            return tracker.change(str(self._service.records().claim(id, "move")["id"]), plan)

        planned = self._timed_tracker.run(operation, work)
        response.media = {**self._service.records().move(id), "repeated": planned.repeated}


class InstanceResource(RecordResource):
    """/v1/instances, with their allocations in Placement. ``room``: places for requests that wait
    for Placement.
    """

    def __init__(self, service: Service, timed_tracker: TimedTracker, room: WaitLimit) -> None:
        super().__init__(service, timed_tracker)
        self._room = room

    def on_get_list(self, request: Request, response: Response) -> None:
        """Show a page of instances."""
        response.media = self._service.records().instances(request.context.query)

    def on_get(self, _request: Request, response: Response, uuid: str) -> None:
        """Show the instance."""
        _show_instance(response, self._service.records().instance(uuid))

    def on_patch(self, request: Request, response: Response, uuid: str) -> None:
        """Update the instance's record."""
        version = int(request.context.header["If-Match"].strip('"'))
        update = instance_update(request.context.body, version)
        instance = self._timed_tracker.run(
            "update", lambda tracker: tracker.update(ConsumerUuid(uuid), update)
        )
        _show_instance(response, asdict(instance))

    def on_delete_allocation(self, request: Request, response: Response, uuid: str) -> None:
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


def _show_instance(response: Response, document: JsonObject) -> None:
    response.set_header("ETag", f'"{document["version"]}"')
    response.media = document


class GuestResource(RecordResource):
    """/v1/guests: those that the hypervisor shows, and the import of unrecorded ones."""

    def on_get_list(self, _request: Request, response: Response) -> None:
        """Show all guests, by node."""
        self._service.check_manages()
        tracker = self._service.tracker()
        response.media = {"nodes": _guests_of_nodes(tracker, (), tracker.preview_import)}

    def on_post_import(self, request: Request, response: Response) -> None:
        """Import the guests without records. An error of one node does not stop the import on the
        others.
        """
        asked = request.context.body
        self._service.check_manages()
        tracker, dry_run = self._service.tracker(), asked.dry_run
        again = [ConsumerUuid(uuid) for uuid in asked.again]

        def import_node(state: NodeState) -> GuestImport:
            if not dry_run:
                return self._timed_tracker.run(
                    "import-guests", lambda tracker: tracker.import_guests(state.node.uuid, again)
                )
            check_ready(state)
            return tracker.preview_import(state, again)

        wanted = () if asked.nodes is UNSET else asked.nodes
        response.media = {
            "dry_run": dry_run,
            "nodes": _guests_of_nodes(tracker, wanted, import_node),
        }

    def on_delete(self, _request: Request, response: Response, uuid: str) -> None:
        """End the guest's record."""
        response.media = asdict(
            self._timed_tracker.run(
                "forget-guest", lambda tracker: tracker.forget(ConsumerUuid(uuid))
            )
        )


def chosen_nodes(tracker: Tracker, wanted: Sequence[str]) -> list[ProviderUuid]:
    """Return the nodes with these names, patterns or uuids; all nodes if there are none.

    :raises UnknownNode: one of them matches no node.
    """
    names = {
        **dict.fromkeys(tracker.nodes(), ""),
        **{state.node.uuid: state.node.name for state in tracker.states_in_memory()},
    }
    chosen, unmatched = choose_nodes(names.items(), wanted, lambda node: node)
    if unmatched:
        raise UnknownNode(
            f"no node {printable(unmatched[0])} here",
            "see the nodes of this host: agent status",
        )
    return sorted(uuid for uuid, _ in chosen)


def _guests_of_nodes(
    tracker: Tracker, wanted: Sequence[str], look: Callable[[NodeState], GuestImport]
) -> list[JsonObject]:
    """Return the documents of the chosen nodes' guests. ``look`` finds the guests of a node."""
    documents = []
    for uuid in chosen_nodes(tracker, wanted):
        name = str(uuid)
        try:
            state = tracker.view(uuid)
            name = state.node.name
            documents.append(node_guests(state, look(state)))
        except AgentError as error:
            documents.append(node_without_guests(uuid, name, error))
    return documents
