"""The guests that a node's hypervisor shows, and what the records say of them."""

from agent.api.documents.records import JsonObject, cell_document
from agent.errors import AgentError
from agent.model.names import printable
from agent.tracker.errors import GuestsUntold
from agent.tracker.guest_import import GuestImport, ObservedGuest
from agent.tracker.node_state import NodeState


def node_guests(state: NodeState, found: GuestImport) -> JsonObject:
    """All guests of the node; among the errors, that these may not be all."""
    name, why = state.node.name, state.host.guests_untold
    untold = [GuestsUntold(f"node {printable(name)}: there may be more guests: {printable(why)}", "see agent status")] if why else []
    return {"name": name, "uuid": state.node.uuid, "guests": [_guest(one) for one in found.guests], "errors": [_error(one) for one in untold]}


def node_without_guests(uuid: str, name: str, error: AgentError) -> JsonObject:
    """A node of which nobody can tell."""
    return {"name": name, "uuid": uuid, "guests": [], "errors": [_error(error)]}


def _guest(one: ObservedGuest) -> JsonObject:
    guest, origin = one.guest, one.guest.origin
    return {
        "uuid": guest.uuid,
        "name": guest.name,
        "state": guest.state,
        "memory_mb": guest.memory_mib,
        "vcpus": guest.vcpus,
        "cells": [cell_document(cell) for cell in guest.cells],
        "devices": [str(address) for address in guest.devices],
        "flavor": origin.flavor.name if origin is not None else None,
        "project_id": origin.project_id if origin is not None else None,
        "user_id": origin.user_id if origin is not None else None,
        "outcome": one.outcome,
        "claim": one.claim,
        "refusals": [{"reason": refusal.reason, "remedy": refusal.remedy} for refusal in one.refusals],
    }


def _error(error: AgentError) -> JsonObject:
    return {"code": error.code, "message": error.message, "remedy": error.remedy}
