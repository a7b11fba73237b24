"""Claim: the resources promised to one instance on one node. The sum of the open claims is the
usage of the node.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from agent.model.flavor import NOTHING, Amounts
from agent.model.guest import PlacedCell
from agent.model.mdev import MdevShare
from agent.model.names import ConsumerUuid, ProviderUuid

Half = Literal["only", "old", "new"]
ClaimState = Literal["held", "consumed", "released"]
Purpose = Literal["instance", "move", "devices"]
HALVES: frozenset[Half] = frozenset(get_args(Half))
CLAIM_STATES: frozenset[ClaimState] = frozenset(get_args(ClaimState))
PURPOSES: frozenset[Purpose] = frozenset(get_args(Purpose))


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One promise, with its own amounts, so that exactly these are given back whatever the instance
    has become.

    Devices and units name the claim that holds them.
    """

    id: str
    purpose: Purpose
    instance: ConsumerUuid
    node: ProviderUuid
    half: Half = "only"
    """The source's (``old``) or the destination's (``new``) half of a move; the half that stays
    becomes ``only`` again.
    """
    state: ClaimState = "held"
    """``held`` until the guest is there, then ``consumed``. A ``released`` claim counts no more and
    is kept so that a repeated request is harmless.
    """
    amounts: Amounts = NOTHING
    cells: tuple[PlacedCell, ...] = ()
    """The host cells of the guest's cells; empty for a guest that floats."""
    mdevs: tuple[MdevShare, ...] = ()
    """The mediated devices that the scheduler allocated."""
    flavor_id: str | None = None
    """The flavor whose amounts are counted."""
    migration: ConsumerUuid | None = None
    """The move under way of which the claim is a half; None for ``only``."""
    origin: ConsumerUuid | None = None
    """The move for which the claim was opened, whatever came after."""
    digest: str = ""
    """Equal exactly for an equal request."""
    created_at: float = 0.0
    """Seconds since the epoch."""
    updated_at: float = 0.0
    """Seconds since the epoch."""
    version: int = 0
    """See :mod:`agent.model.node_records`."""

    @property
    def open(self) -> bool:
        """Whether it counts."""
        return self.state != "released"
