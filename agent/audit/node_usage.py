"""What the driver reports of one node, read in the driver's worker with deadlines, and the usage
step that reconciles the node's records with this report.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from agent.audit.beside_nova import NOT_REPORTED_BY_NOVA, reported_by_nova
from agent.audit.context import AuditContext, AuditedNode, AuditOptions
from agent.driver.answers import node_capabilities, node_facts
from agent.driver.interface import (
    Allocations,
    ReportsCapabilities,
    ShapesTree,
    UpdatesProviderTree,
)
from agent.errors import AgentError, DriverError, ProviderNameConflict
from agent.model.facts import HostFacts
from agent.model.names import ProviderUuid, printable
from agent.model.provider import ProviderExists
from agent.model.provider_tree import ProviderTree
from agent.placement import clock
from agent.placement.node_state import NodePlacementState
from agent.tracker.node_state import NodeView
from agent.tracker.observed_guests import with_observed_guests
from agent.tracker.start_checks import nothing_left, unreservable_pages
from agent.tree.desired_tree import DriverReport


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
        :raises ConfigErrors: the options contradict the host.
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
        view = self._context.records.usage_step.audit(
            self._node,
            facts,
            self._placement_state.named_view.tree,
            start=start,
            dry_run=options.dry_run,
        )
        view = with_observed_guests(view, clock.now()) if self._context.observes else view
        policy = self._context.policy
        of_options = (
            *unreservable_pages(facts, policy.host),
            *nothing_left(facts, policy.reserved_memory_mib),
        )
        return replace(view, drift=(*view.drift, *of_options)) if of_options else view

    def remove(self, options: AuditOptions) -> bool:
        """Remove the records of a node that was deleted. What was read of Placement stays valid:
        returns False.
        """
        if not options.dry_run:
            self._context.records.usage_step.mark_deleted(self._node)
        return False


class DriverReader:
    """Reads what the driver reports of one node."""

    def __init__(
        self, context: AuditContext, node: AuditedNode, placement_state: NodePlacementState
    ) -> None:
        """``placement_state`` explains errors of a driver that shapes the tree: whose provider is
        in its way.
        """
        self._context, self._node, self._placement_state = context, node, placement_state
        driver = context.driver
        # Checked once, because isinstance() on a Protocol takes as long as some audits.
        self._reports_capabilities = driver if isinstance(driver, ReportsCapabilities) else None
        self._shapes_all = driver if isinstance(driver, UpdatesProviderTree) else None
        self._shapes = driver if isinstance(driver, ShapesTree) else None

    @property
    def edits_tree(self) -> bool:
        """Whether the driver itself edits the tree, all of it or its own part."""
        return self._shapes_all is not None or self._shapes is not None

    def read(self) -> DriverReport:
        """Return the facts and capabilities of the node, and the driver's function that shapes its
        tree.

        :raises DriverError: the driver failed, or its answer is not usable.
        """
        context, node = self._context, self._node
        asked = context.worker, node.driver, node.name, context.facts_deadline
        facts = node_facts(context.driver, *asked)
        # Drivers use the wall clock; the facts are compared with each other and with records.
        taken_at = clock.of_wall_clock(facts.taken_at)
        if taken_at != facts.taken_at:
            facts = replace(facts, taken_at=taken_at)
        capabilities: Mapping[str, bool] = {}
        if self._reports_capabilities is not None:
            capabilities = node_capabilities(self._reports_capabilities, *asked)
        if context.gives_back:
            facts = replace(facts, traits=facts.traits and reported_by_nova(facts.traits))
            capabilities = reported_by_nova(capabilities)
        return DriverReport(
            facts,
            capabilities,
            partial(self._shape, facts),
            shape_all=self._shapes_all is not None,
        )

    def _shape(self, facts: HostFacts, tree: ProviderTree, allocations: Allocations | None) -> None:
        """Have the driver shape its part of the tree."""
        context, node = self._context, self._node
        call = partial(context.worker.call, deadline=context.facts_deadline, node=node.name)
        before = tree.provider(node.uuid).traits if tree.exists(node.uuid) else frozenset[str]()
        try:
            if self._shapes_all is not None:
                call(self._shapes_all.update_provider_tree, tree, node.name, allocations)
            elif self._shapes is not None:
                call(self._shapes.shape, tree, facts, allocations)
        except DriverError as error:
            raise _explained(error, node, self._placement_state) from error
        if context.gives_back and tree.exists(node.uuid):
            added = tree.provider(node.uuid).traits - before
            tree.remove_traits(node.uuid, *(added & NOT_REPORTED_BY_NOVA))


def _explained(
    error: DriverError, node: AuditedNode, placement_state: NodePlacementState
) -> AgentError:
    """Return a clearer error for a driver that failed to shape its tree, if the cause is known."""
    cause = error.__cause__
    if not isinstance(cause, ProviderExists):
        return error
    name, there = printable(cause.name), cause.there
    theirs = (
        there is not None
        and placement_state.view.tree.exists(there.uuid)
        and not placement_state.journal.owns(there.uuid)
    )
    if there is not None and there.name == cause.name and theirs:
        return ProviderNameConflict(
            (
                f"{node.driver} makes provider {name!r}, but provider {there.uuid}, which is "
                "somebody else's, has that name in the tree"
            ),
            (
                "delete or rename that provider; a driver that is to share it has to ask exists() "
                "before it calls new_child()"
            ),
            holder=there.uuid,
            uuid=cause.uuid,
        )
    what = (
        f"driver error: {node.driver} calls new_child() for {name!r}, {cause.uuid}, but the tree "
        "has a provider of that name or uuid already"
    )
    return DriverError(what, "the driver has to ask exists() before it calls new_child()")
