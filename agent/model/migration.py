"""A migration: the move of one instance from one place to another."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from agent.model.names import ConsumerUuid, ProviderUuid

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
TYPES: frozenset[MigrationType] = frozenset(get_args(MigrationType))
STATUSES: frozenset[MigrationStatus] = frozenset(get_args(MigrationStatus))
# How a move that is given up ends: nothing went wrong with it.
GIVEN_UP: Mapping[MigrationType, MigrationStatus] = {
    "resize": "cancelled",
    "migration": "cancelled",
    "live-migration": "cancelled",
    "evacuation": "failed",
}
# How one that has arrived, and may still go either way, ends if nobody is there any more to confirm
# or revert it.
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
    """One move. Its uuid is also a consumer: while it runs, that holds the allocation at the
    source.

    ``dest_host``: the address of the destination, an IP. What it holds at either end is in its
    claims: the half ``old`` at the source, ``new`` at the destination. ``version``: see
    :mod:`agent.model.node_records`; times in seconds since the epoch. ``cleared``: of an
    evacuation that is done, that nothing of it is left in Placement at the source: what the
    instance holds there afterwards has another reason. ``clearing``: by which generation of the
    instance as a consumer that is being removed, if it is.
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
    old_flavor_id: str | None = None
    new_flavor_id: str | None = None
    hidden: bool = False
    cross_cell_move: bool = False
    cleared: bool = False
    clearing: int | None = None
    created_at: float = 0.0
    updated_at: float = 0.0
    version: int = 0

    @property
    def ended(self) -> bool:
        """Whether it is over, however it ended."""
        return self.status in ENDED

    @property
    def without_guest(self) -> MigrationStatus:
        """The status that it ends with when its guest is gone."""
        return self.status if self.ended else LEFT_OPEN.get(self.status, GIVEN_UP[self.type])

    @property
    def in_progress(self) -> bool:
        """Whether it goes on; ``finished`` does, because it waits to be confirmed or reverted."""
        return not self.ended and self.status != "error"

    @property
    def same_node(self) -> bool:
        """Whether it leads back to where it begins."""
        return self.source_node is not None and self.source_node == self.dest_node
