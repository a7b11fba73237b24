"""The guests of a node that nova-compute manages: what they have by the hypervisor, counted as
claims, and what of it others have too or the host does not offer. Pure.
"""

from collections.abc import Iterator
from dataclasses import replace

from agent.model.facts import Domain
from agent.model.names import printable
from agent.model.node_records import RecordedConsumers
from agent.model.report import Drift
from agent.tracker import nova_commands
from agent.tracker.claim_usage import overcommitted
from agent.tracker.domains import import_guests
from agent.tracker.node_state import NodeState, NodeView


def with_observed_guests(view: NodeView, now: float) -> NodeView:
    """Return ``view`` with a claim for each guest that the hypervisor shows, and drift for the
    guests that have what others have too, or what the host does not offer. ``now``: seconds since
    the epoch.
    """
    if view.state.host.guests is None:
        return view
    found = import_guests(view.state, RecordedConsumers(), now)
    state = view.state.after(found.changes)
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
            *overcommitted(state.node, state.host.reserved, state.used),
            *_overdrawn_pages(state),
        ),
    )


def _overdrawn_pages(state: NodeState) -> Iterator[Drift]:
    """Yield a drift for each cell and size of huge pages of which the guests have more than there
    are, running or not.
    """
    for cell in state.cells:
        for pool in cell.huge_pages:
            pages = {
                guest.uuid: (guest, count)
                for guest in state.host.guests or ()
                if (count := _pages(guest, cell.id, pool.size_kib))
            }
            promised = sum(count for _, count in pages.values())
            if promised <= pool.total - pool.reserved:
                continue
            kept = f", of which {pool.reserved} are reserved" if pool.reserved else ""
            users = ", ".join(
                f"{printable(guest.name)} ({uuid}) {count}"
                for uuid, (guest, count) in sorted(pages.items())
            )
            most = max(sorted(pages), key=lambda uuid: pages[uuid][1])
            yield Drift(
                "overcommitted",
                "warning",
                f"node {printable(state.node.name)}, cell {cell.id}: {promised} pages of "
                f"{pool.size_kib} KiB are promised, of {pool.total}{kept}: {users}",
                f"move a guest away: {nova_commands.migrate(most)}; or give the cell more pages: "
                f"echo {promised + pool.reserved} > /sys/devices/system/node/node{cell.id}/"
                f"hugepages/hugepages-{pool.size_kib}kB/nr_hugepages",
                state.node.uuid,
            )


def _pages(guest: Domain, cell: int, size_kib: int) -> int:
    """Return how many pages of that size a guest has of a cell; a part of one takes a whole."""
    return sum(
        -(-placed.cell.memory_mib * 1024 // size_kib)
        for placed in guest.cells
        if placed.host_cell == cell and placed.page_size_kib == size_kib
    )


def guest_name(guest: Domain) -> str:
    """Return the name and the uuid of a guest, for messages."""
    return f"guest {printable(guest.name)} ({guest.uuid})"
