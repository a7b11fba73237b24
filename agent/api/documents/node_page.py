"""The documents from which a page of nodes is made: a node's report with its records, its guests,
and what consumers hold of it in Placement.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from agent.api.documents.node import (
    JsonObject,
    claim_document,
    device_document,
    migration_document,
    node_guests,
    node_records,
)
from agent.errors import AgentError
from agent.model.claim import ENDED
from agent.model.mirror import Consumers
from agent.tracker.node_state import NodeState
from agent.tracker.tracker import Tracker

NO_RECORDS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "guests": (),
    "claims": (),
    "migrations": (),
    "devices": (),
}
"""What a page shows of the records of a node without any."""


def node_page_document(
    node: Mapping[str, Any], consumers: Consumers, state: NodeState | None, tracker: Tracker | None
) -> JsonObject:
    """Return the document of ``node``, which has the keys of a node in a report, ``audited_at`` and
    ``last_good_audit_at``.

    ``state``: the node's records, None if they are unknown; ``tracker`` is then not used.
    """
    document = {**node, "allocations": allocations_document(consumers)}
    if state is None:
        return {**document, "records": None, **NO_RECORDS}
    devices, units = state.devices.values(), state.units.values()
    return {
        **document,
        "records": node_records(state),
        "guests": _guests(state, tracker) if tracker is not None else (),
        "claims": [
            claim_document(claim, devices, units, state.node.name)
            for claim in state.claims.values()
        ],
        "migrations": [
            migration_document(migration)
            for migration in state.migrations.values()
            if migration.status not in ENDED
        ],
        "devices": [device_document(device) for device in devices],
    }


def allocations_document(consumers: Consumers) -> JsonObject:
    """Return what each consumer holds of each provider: uuid of the consumer to uuid of the
    provider to resource class to amount.
    """
    held: dict[str, dict[str, dict[str, int]]] = {}
    for provider, of_provider in consumers.items():
        for consumer, resources in of_provider.items():
            held.setdefault(consumer, {})[provider] = dict(resources)
    return held


def _guests(state: NodeState, tracker: Tracker) -> Sequence[Mapping[str, Any]]:
    if not state.host.guests:
        # Nothing is read from the store for a node that has none, because there may be thousands.
        return ()
    try:
        guests: Sequence[Mapping[str, Any]] = node_guests(state, tracker.preview_import(state))[
            "guests"
        ]
    except AgentError:
        # The driver does not report guests; where it should and could not, the audit says so.
        return ()
    return guests
