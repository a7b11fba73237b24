"""A lease: the proof that a host, and no other, manages a node now, or all nodes of a kind."""

from dataclasses import dataclass

from agent.model.names import ProviderUuid


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """``node``: its uuid, or that of a lease on many, see :mod:`agent.tracker.shared_lease`.

    ``expires_at`` in seconds since the epoch; ``version``: see :mod:`agent.model.record_changes`.
    """

    node: ProviderUuid
    host: str
    expires_at: float
    version: int = 0

    def live(self, now: float) -> bool:
        """Whether the holder can still be there."""
        return now < self.expires_at
