"""Resources for the guests that the hypervisor shows, and for the import of unrecorded ones."""

from collections.abc import Callable, Sequence

from falcon import Request, Response
from msgspec import UNSET

from agent.api.documents.node import JsonObject, instance_document, node_guests, node_without_guests
from agent.api.metrics import TimedTracker
from agent.api.service import Service
from agent.errors import AgentError
from agent.model.names import ConsumerUuid, ProviderUuid, choose_nodes, printable
from agent.tracker.claims import check_ready
from agent.tracker.domains import GuestImport
from agent.tracker.errors import UnknownNode
from agent.tracker.node_state import NodeState
from agent.tracker.tracker import Tracker


class GuestsResource:
    """/v1/guests."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def on_get(self, _request: Request, response: Response) -> None:
        """Show all guests, by node."""
        tracker = self._service.tracker()
        response.media = {
            "nodes": [
                _node(tracker, uuid, tracker.preview_import) for uuid in chosen_nodes(tracker, ())
            ]
        }


class GuestImportsResource:
    """/v1/guests/import."""

    def __init__(self, service: Service, timed_tracker: TimedTracker) -> None:
        self._service, self._timed_tracker = service, timed_tracker

    def on_post(self, request: Request, response: Response) -> None:
        """Import the guests without records. An error of one node does not stop the import on the
        others.
        """
        asked = request.context.body
        tracker, dry_run = self._service.tracker(), asked.dry_run

        def import_node(state: NodeState) -> GuestImport:
            if not dry_run:
                return self._timed_tracker.run(
                    "import-guests", lambda tracker: tracker.import_guests(state.node.uuid)
                )
            check_ready(state)
            return tracker.preview_import(state)

        response.media = {
            "dry_run": dry_run,
            "nodes": [
                _node(tracker, uuid, import_node)
                for uuid in chosen_nodes(tracker, () if asked.nodes is UNSET else asked.nodes)
            ],
        }


class GuestResource:
    """/v1/guests/{uuid}."""

    def __init__(self, timed_tracker: TimedTracker) -> None:
        self._timed_tracker = timed_tracker

    def on_delete(self, _request: Request, response: Response, uuid: str) -> None:
        """End the guest's record."""
        response.media = instance_document(
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
            "see agent status for the nodes of this host",
        )
    return sorted(uuid for uuid, _ in chosen)


def _node(
    tracker: Tracker, uuid: ProviderUuid, look: Callable[[NodeState], GuestImport]
) -> JsonObject:
    name = str(uuid)
    try:
        state = tracker.view(uuid)
        name = state.node.name
        return node_guests(state, look(state))
    except AgentError as error:
        return node_without_guests(uuid, name, error)
