"""A rebuild in place with another image: the guest stays where it is, so the new request has to mean the same cells."""

from collections.abc import Sequence

from agent.errors import AgentError
from agent.model.guest import Guest, PlacedCell
from agent.numa.fit import NoFit, fit
from agent.numa.host import HostCell
from agent.numa.pair import Limits


class RebuildRefused(AgentError):
    """The new image asks for other cells than the guest has."""

    code = "numa.rebuild"


def check_rebuild(host: Sequence[HostCell], placed: Sequence[PlacedCell], guest: Guest, limits: Limits | None = None) -> None:
    """Fit ``guest``, the new request, into the host cells that it has, with its old cells ``placed`` still counted there.

    They are not given back first, because a rebuild takes no claim: should it fail, the old guest has to be there still.

    :raises RebuildRefused: it does not fit, or has other guest cells or pages.
    """
    own = {one.host_cell for one in placed}
    try:
        cells = fit([cell for cell in host if cell.id in own], guest, limits=limits).cells
    except NoFit as reason:
        raise RebuildRefused(f"there is no room for the rebuilt guest beside the old one: {reason.message}", "resize or move it instead") from reason
    if list(map(_where, cells)) != list(map(_where, placed)):
        raise RebuildRefused("the rebuilt guest would have other cells than the old one", "use an image that asks for the same topology")


def _where(one: PlacedCell) -> tuple[object, ...]:
    """All but the CPUs that it is pinned to, which the old guest has."""
    return one.cell, one.host_cell, one.page_size_kib
