"""Claim: the resources promised to one instance on one node; the sum of the open claims is the
usage of the node. Migration: the move of one instance from one node to another, or its resize.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from agent.model.host_units import MdevShare
from agent.model.instance import NOTHING, Amounts, PlacedCell
from agent.model.names import ConsumerUuid, ProviderUuid

Half = Literal["only", "old", "new"]
ClaimState = Literal["held", "consumed", "released"]
Purpose = Literal["instance", "move", "devices"]


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


MigrationType = Literal["resize", "migration", "live-migration", "evacuation"]
MigrationStatus = Literal[
    "queued",
    "accepted",
    "pre-migrating",
    "preparing",
    "migrating",
    "running",
    "post-migrating",
    "finished",
    "reverting",
    "confirming",
    "error",
    "confirmed",
    "reverted",
    "completed",
    "done",
    "failed",
    "cancelled",
]
# The status of a move that was given up without a fault.
GIVEN_UP: Mapping[MigrationType, MigrationStatus] = {
    "resize": "cancelled",
    "migration": "cancelled",
    "live-migration": "cancelled",
    "evacuation": "failed",
}
# The final status of a move that has arrived and was still to be confirmed or reverted, if its
# guest is gone, so that nobody confirms or reverts it any more.
LEFT_OPEN: Mapping[MigrationStatus, MigrationStatus] = {
    "finished": "confirmed",
    "confirming": "confirmed",
    "reverting": "reverted",
}
ENDED: frozenset[MigrationStatus] = frozenset(
    {"confirmed", "reverted", "completed", "done", "failed", "cancelled"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One move. Its uuid is also a consumer, which holds the allocation at the source while the
    move goes on.

    The resources at either end are in the claims: the half ``old`` at the source, ``new`` at the
    destination.
    """

    uuid: ConsumerUuid
    instance: ConsumerUuid
    type: MigrationType
    status: MigrationStatus
    source_compute: str | None
    source_node: ProviderUuid | None
    dest_compute: str | None = None
    dest_node: ProviderUuid | None = None
    dest_host: str | None = None
    """The IP address of the destination."""
    old_flavor_id: str | None = None
    new_flavor_id: str | None = None
    hidden: bool = False
    cross_cell_move: bool = False
    cleared: bool = False
    """Whether nothing of an evacuation that is done is left in Placement at the source: an
    allocation that the instance has there afterwards has another reason.
    """
    clearing: int | None = None
    """The consumer generation of the instance with which the leftover is being removed; None if it
    is not.
    """
    created_at: float = 0.0
    """Seconds since the epoch."""
    updated_at: float = 0.0
    """Seconds since the epoch."""
    version: int = 0
    """See :mod:`agent.model.node_records`."""

    @property
    def ended(self) -> bool:
        """Whether the move is over, however it ended."""
        return self.status in ENDED

    @property
    def without_guest(self) -> MigrationStatus:
        """The status with which the move ends when its guest is gone."""
        return self.status if self.ended else LEFT_OPEN.get(self.status, GIVEN_UP[self.type])

    @property
    def in_progress(self) -> bool:
        """Whether the move goes on; also when ``finished``, because it waits to be confirmed or
        reverted.
        """
        return not self.ended and self.status != "error"

    @property
    def same_node(self) -> bool:
        """Whether source and destination are the same node."""
        return self.source_node is not None and self.source_node == self.dest_node
