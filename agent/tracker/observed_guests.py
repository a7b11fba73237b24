"""The guests of a node that nova-compute manages: what they have by the hypervisor, counted as
claims, and what of it others have too or the host does not offer. Pure.
"""

from dataclasses import replace

from agent.model.facts import Domain
from agent.model.names import ConsumerUuid, printable
from agent.model.node_records import RecordedConsumers
from agent.model.report import Drift
from agent.tracker import nova_commands
from agent.tracker.changed_hardware import offline_cpus, overdrawn_pages
from agent.tracker.claim_usage import overcommitted
from agent.tracker.domains import import_guests, unreadable_origins
from agent.tracker.node_state import NodeView


def with_observed_guests(view: NodeView, now: float) -> NodeView:
    """Return ``view`` with a claim for each guest that the hypervisor shows, and drift for the
    guests that have what others have too, or what the host does not offer. ``now``: seconds since
    the epoch.
    """
    if view.state.host.guests is None:
        return view
    found = import_guests(view.state, RecordedConsumers(), now)
    state = view.state.after(found.changes)
    # All of them, running or not, and whether they are counted or not.
    holders = {
        guest.uuid: (f"{printable(guest.name)} ({guest.uuid})", guest.cells)
        for guest in view.state.host.guests
    }
    drift = [
        Drift(
            "guest-conflict",
            "warning",
            f"{guest_name(seen.guest)}: {refusal.reason}",
            f"{refusal.remedy}; to move it: {nova_commands.migrate(seen.guest.uuid)}",
            consumer=seen.guest.uuid,
        )
        for seen in found.guests
        for refusal in seen.refusals
    ]
    return replace(
        view,
        state=state,
        usage=state.usage,
        drift=(
            *drift,
            *unreadable_origins(view.state.host.guests),
            *overcommitted(state.node, state.host.reserved, state.used),
            *offline_cpus(state, holders, _migrate),
            *overdrawn_pages(state, holders, _migrate),
        ),
    )


def _migrate(guest: ConsumerUuid) -> str:
    return f"move a guest away: {nova_commands.migrate(guest)}"


def guest_name(guest: Domain) -> str:
    """Return the name and the uuid of a guest, for messages."""
    return f"guest {printable(guest.name)} ({guest.uuid})"
