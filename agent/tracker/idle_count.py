"""Idle counts: a count of a node's records that found nothing to change, with everything that the
count follows from. While this is equal, the next count comes to the same result.
"""

from dataclasses import dataclass
from typing import Self

from agent.model.facts import HostFacts
from agent.model.node_records import Lease
from agent.model.provider_tree import ProviderTree
from agent.tracker.node_record import RENEWED_AT, Agent, is_ours
from agent.tracker.node_state import NodeState, NodeView


@dataclass(frozen=True, slots=True)
class IdleCount:
    """A count that found nothing to change or to report."""

    view: NodeView
    facts: HostFacts
    """With these records no result depends on their time."""
    present: ProviderTree
    """The node's tree in Placement."""
    at: float
    """When the node was counted, in seconds since the epoch."""
    until: float
    """When the lease has to be renewed, in seconds since the epoch. Until then no other host can
    have the node.
    """

    @classmethod
    def of(
        cls,
        view: NodeView,
        facts: HostFacts,
        present: ProviderTree,
        lease: Lease | None,
        agent: Agent,
        now: float,
    ) -> Self | None:
        """Return the count if its result can be taken again; None if it depends on the time, on
        records of other nodes, or on a lease that is not this host's.
        """
        state, claims = view.state, view.state.claims.values()
        if lease is None or not is_ours(lease, agent.host, now) or view.taken or view.created:
            return None
        # The verdict on a claim that nobody uses yet, or of a move, depends on the time; so does
        # that on a claim which is newer than the facts.
        waits = state.migrations or any(
            claim.half != "only" or claim.state != "consumed" or claim.updated_at > facts.taken_at
            for claim in claims
        )
        # Who owns a guest without a claim here depends on the records of other nodes.
        strange = {guest.uuid for guest in facts.domains or ()} - {
            claim.instance for claim in claims
        }
        if waits or strange or view.drift or view.problems:
            return None
        until = lease.expires_at - agent.lease_seconds * RENEWED_AT
        return cls(view, facts, present, now, until)

    def repeats(
        self,
        state: NodeState | None,
        facts: HostFacts,
        present: ProviderTree,
        version: int | None,
        now: float,
    ) -> bool:
        """Return whether another count would come to the same result.

        ``state``: the node's state in memory. ``version``: of the node's record in the store; None
        if it is unknown, or a move from or to the node is under way.
        """
        return (
            state is not None
            and state.host.available
            and version == self.view.version == state.node.version
            and self.at <= now < self.until
            and facts.same_but_for_time(self.facts)
            and present.same_contents(self.present)
        )
