"""The host's side of a node: what it has and keeps for itself, before any guest."""

from dataclasses import dataclass

from agent.model.amounts import NOTHING, Amounts
from agent.numa.host import HostCell
from agent.numa.preference import Strategy


@dataclass(frozen=True, slots=True)
class HostSide:
    """``reserved``: what the operator keeps for the host. ``cells``: empty where there is nothing to fit.
    ``strategy``: which cells are taken first. ``taken_at``: of the facts.

    ``available``: whether the driver offers the node. All that a claim needs to know beside the records.
    """

    reserved: Amounts = NOTHING
    cells: tuple[HostCell, ...] = ()
    strategy: Strategy = "spread"
    taken_at: float = 0.0
    available: bool = True
