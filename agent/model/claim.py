"""A claim: what one instance is promised on one node. The sum of the open claims is what is used of
the node.
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
    """One promise, with its own amounts, so that it is given back as it was made whatever the
    instance has become.

    ``half``: of a move the source's or the destination's; the one that stays becomes ``only``
    again. ``migration``: the move under way that it is a half of, None for an ``only`` one;
    ``origin``: the move that it was made for, whatever came after. ``state``: ``held`` until the
    guest is there, then ``consumed``; ``released`` counts no more and is kept so that repeating is
    harmless. ``cells``: where the guest's cells sit, empty for one that floats. ``mdevs``: the
    mediated devices that the scheduler allocated. ``digest`` tells whether the same request came
    again; ``flavor_id`` is the flavor counted. Devices and units name the claim that holds them.
    ``version``: see
    :mod:`agent.model.node_records`; times in seconds since the epoch.
    """

    id: str
    purpose: Purpose
    instance: ConsumerUuid
    node: ProviderUuid
    half: Half = "only"
    state: ClaimState = "held"
    amounts: Amounts = NOTHING
    cells: tuple[PlacedCell, ...] = ()
    mdevs: tuple[MdevShare, ...] = ()
    flavor_id: str | None = None
    migration: ConsumerUuid | None = None
    origin: ConsumerUuid | None = None
    digest: str = ""
    created_at: float = 0.0
    updated_at: float = 0.0
    version: int = 0

    @property
    def open(self) -> bool:
        """Whether it counts."""
        return self.state != "released"
