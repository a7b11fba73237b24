"""On which host cells the consumers of a node sit, by the records, and by the hypervisor where no record says. Pure."""

from collections.abc import Iterable

from agent.tree.reshape.context import GuestPlaces
from agent.model.domain import Domain
from agent.model.guest import PlacedCell
from agent.model.names import ConsumerUuid
from agent.tracker.node_state import NodeState


def guest_places(state: NodeState | None, domains: Iterable[Domain]) -> GuestPlaces:
    """Of each guest; what it leaves behind when it moves away is held by its migration."""
    cells: dict[ConsumerUuid, tuple[PlacedCell, ...]] = {one.uuid: one.cells for one in domains}
    moving: dict[ConsumerUuid, ConsumerUuid] = {}
    claims = sorted(state.claims.values(), key=lambda one: one.half != "old") if state is not None else ()
    for one in claims:
        if one.purpose == "devices":
            continue
        if one.half == "old" and one.migration is not None:
            cells[one.migration] = one.cells
            moving[one.migration] = one.instance
            # An evacuated guest holds both ends itself.
            cells.setdefault(one.instance, one.cells)
        else:
            cells[one.instance] = one.cells
    return GuestPlaces(cells, moving)
