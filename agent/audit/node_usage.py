"""The usage step of one node: its records reconciled with the driver report."""

from agent.audit.context import AuditContext, AuditOptions
from agent.model.facts import HostFacts
from agent.model.names import ProviderUuid
from agent.placement.node_state import NodePlacementState
from agent.tracker.node_state import NodeView


class NodeUsage:
    """Counts what is used and claimed on one node, again in every attempt of every audit."""

    def __init__(
        self, context: AuditContext, node: ProviderUuid, placement_state: NodePlacementState
    ) -> None:
        self._context, self._node, self._placement_state = context, node, placement_state
        # ``_counted``: an audit has counted the node. ``_uncertain``: the last count failed, so the
        # lease may have been lost.
        self._counted = self._uncertain = False

    def count(
        self, facts: HostFacts, options: AuditOptions, *, start: bool
    ) -> tuple[NodeView, bool]:
        """Return what the records of the node show, and whether another agent may have had the node
        since the last audit: then what was remembered of Placement is forgotten.

        :raises NodeHeldElsewhere: another host manages the node.
        :raises ConfigErrors: the options contradict the host or what its guests have.
        :raises StoreError: the records cannot be read or written.
        """
        uncertain, self._uncertain = self._uncertain, True
        records = self._audit(facts, options, start=start)
        # Also after a first count that failed: what was read for its report may be older than
        # changes by another agent.
        taken_over = uncertain or (self._counted and records.taken)
        if taken_over:
            self._placement_state.forget()
            records = self._audit(facts, options, start=start)
        self._counted, self._uncertain = True, False
        return records, taken_over

    def _audit(self, facts: HostFacts, options: AuditOptions, *, start: bool) -> NodeView:
        return self._context.records.usage_step.audit(
            self._node,
            facts,
            self._placement_state.view.tree,
            start=start,
            dry_run=options.dry_run,
        )

    def remove(self, options: AuditOptions) -> bool:
        """Remove the records of a node that was deleted. What was read of Placement stays valid:
        returns False.
        """
        if not options.dry_run:
            self._context.records.usage_step.mark_deleted(self._node)
        return False
