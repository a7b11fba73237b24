"""One audit of one node: observe → shape → plan → flush."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from agent.audit.allocations import JudgedAllocations, NodeAllocations
from agent.audit.asked_nova import AskedNova
from agent.audit.attempts import Attempts
from agent.audit.beside_nova import ObservedAllocations, without_novas_rules
from agent.audit.context import AuditContext, AuditedNode, AuditOptions
from agent.audit.devices import LATER, DeviceAllocations, Surpluses
from agent.audit.idle import IdleAttempt
from agent.audit.name_conflict import tell_way_out
from agent.audit.node_usage import DriverReader, NodeUsage
from agent.audit.observe import Observer
from agent.audit.plan_step import PlannedAudit, plan_audit, plan_removal
from agent.audit.run import AuditRun, RefusedAudit
from agent.audit.shape import Observed, newly_stranded, shape
from agent.errors import (
    AdoptionNeeded,
    AgentBug,
    AgentError,
    InvalidTree,
    RecordConflict,
    ReshapeFailed,
    StoreError,
)
from agent.model.names import MAX_PROVIDER_NAME, ProviderUuid, is_unnamed, printable
from agent.model.provider_tree import BaseTree, DesiredTree, PresentTree, ProviderTree
from agent.model.report import NodeReport, NodeState, Problem, Usage
from agent.placement.answers import Row
from agent.placement.consumers import usages as read_usages
from agent.placement.merge import Merge, Target
from agent.placement.merge_inputs import MergeInputs
from agent.placement.node_state import NodePlacementState
from agent.placement.plan import Plan, make_plan
from agent.placement.reshaping import AllocationMove
from agent.placement.rival_writers import RivalWriters
from agent.placement.roles import with_names_of_others
from agent.placement.transport import MirrorInsufficient
from agent.tracker.node_state import NodeView
from agent.tree.allocation_repair import AllocationRepair
from agent.tree.desired_tree import DriverReport

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _SeparateCount:
    """Result of counting a node outside of an audit: its usage, or the error that prevented it."""

    usage: Usage = field(default_factory=Usage)
    error: AgentError | None = None


class NodeAudit:
    """Audits one node repeatedly and keeps state between audits. Not thread-safe: one audit at a
    time.
    """

    def __init__(self, node: AuditedNode, context: AuditContext) -> None:
        self.node, self.context = node, context
        self.placement_state = NodePlacementState(context.server, node.uuid, node.name)
        self.observer = Observer(node, context, self.placement_state)
        self._driver = DriverReader(context, node, self.placement_state)
        self._usage = NodeUsage(context, node.uuid, self.placement_state)
        # ``_started``: one audit has passed the checks of a start. ``_moved``: every reshape that
        # only a start (or the audit after a takeover) may do is done.
        self._started = self._moved = False
        self._refusal: RefusedAudit | None = None
        self._idle: IdleAttempt | None = None
        self._rivals, self._surpluses = RivalWriters(time.monotonic), Surpluses(time.monotonic)
        self._attempts = Attempts(node, context, self.placement_state, self._rivals)
        refresh = context.freshness.consumers
        asked_nova = AskedNova(context.nova, context.agent, refresh)
        self._observed = ObservedAllocations(self.placement_state, refresh, asked_nova)
        self.records: NodeView | None = None
        """What the records showed in the last audit; None if the node could not be counted."""

    # --- audits -----------------------------------------------------------------------------------

    def run(self, options: AuditOptions, rows: Sequence[Row] | None = None) -> NodeReport:
        """Audit the node and return its report. Never raises an :class:`AgentError`: errors are in
        the report. An audit on the mirror that needs Placement begins anew and asks it.

        ``rows``: the node's structure in Placement, if one list for many nodes already brought it.
        """
        if (
            self._refusal is not None
            and not (options.reread or options.asked)
            and time.monotonic() < self._refusal.until
        ):
            return self._paused(self._refusal.report, options)
        if options.on_mirror:
            with suppress(MirrorInsufficient):
                return self._reported(options, lambda run: self._audit(run, None))
            options = replace(options, on_mirror=False)
        return self._reported(options, lambda run: self._audit(run, rows))

    def remove(self, options: AuditOptions, rows: Sequence[Row] | None = None) -> NodeReport:
        """Delete the providers of ours in the tree of a node of which the driver says that it was
        deleted. Otherwise as :meth:`run`.
        """
        return self._reported(options, lambda run: self._remove(run, rows))

    def _audit(self, run: AuditRun, rows: Sequence[Row] | None) -> None:
        with run.step("facts"):
            report = self._driver.read()
            run.facts = report.facts
        self._attempts.repeat(
            run,
            rows,
            count=lambda: self._count(run, report),
            plan=lambda known: self._plan_audit(run, report, known),
        )

    def _remove(self, run: AuditRun, rows: Sequence[Row] | None) -> None:
        self._attempts.repeat(
            run,
            rows,
            count=lambda: self._usage.remove(run.options),
            plan=lambda known: self._plan_removal(run, known),
        )

    # --- one attempt: observe → shape → plan → flush ----------------------------------------------

    def _plan_audit(
        self, run: AuditRun, report: DriverReport, rows: Sequence[Row] | None
    ) -> PlannedAudit:
        """Observe the node, shape its tree, and plan the way there."""
        with run.step("tree"):
            observed = self._observe(run, report, rows)
            idle = self._idle if observed.idle else None
            target = idle.target if idle is not None else shape(observed)
            repair = self._observe_repair(run, observed, target)
            move = observed.move or repair.move
            if move is not None and (stranded := self._newly_stranded(observed, target, move)):
                observed = self.observer.hold(run, observed, stranded)
                target = shape(observed)
                repair = self._observe_repair(run, observed, target)
                move = observed.move or repair.move
            judged = self._observe_allocations(run, observed, target)
        with run.step("plan"):
            if idle is not None and move is None:
                plan = idle.plan
            else:
                plan = self._plan(run, target, move)
                self._idle = IdleAttempt.of(observed, target, plan)
            return plan_audit(
                observed, plan, repair, judged, self._rivals, self.context.policy.enabled
            )

    def _plan_removal(self, run: AuditRun, rows: Sequence[Row] | None) -> PlannedAudit:
        """Observe the tree of a deleted node, and plan the removal of what is ours of it."""
        with run.step("tree"):
            usages = self.observer.read_mirror(run, rows)
            state, nothing = self.placement_state, ProviderTree()
            inputs = MergeInputs.of(
                state.named_view,
                state.journal,
                BaseTree(nothing),
                DesiredTree(nothing),
                self.node.uuid,
            )
            target = Merge(inputs, state.capabilities, usages).target()
        with run.step("plan"):
            return plan_removal(self._plan(run, target, None), self._rivals)

    # --- what an attempt observes -----------------------------------------------------------------

    def _count(self, run: AuditRun, report: DriverReport) -> bool:
        """Count what is used and claimed on the node. Return whether another agent may have had
        the node since the last audit.
        """
        start = run.options.start and not self._started
        before = self.records.state.displaced if self.records is not None else frozenset[str]()
        run.records, taken_over = self._usage.count(report.facts, run.options, start=start)
        if taken_over or before - run.records.state.displaced:
            # The other agent may have had another layout; guests whose cells are known again may
            # hold something of cells that are gone.
            self._moved = False
        unpublished = not run.options.dry_run and run.records.state.node.dirty
        if run.options.on_mirror and (taken_over or unpublished):
            raise MirrorInsufficient("records are not published yet")
        return taken_over

    def _observe(self, run: AuditRun, report: DriverReport, rows: Sequence[Row] | None) -> Observed:
        """Read the mirror, the tree of the driver, and the names that the first shape adds."""
        usages = self.observer.read_mirror(run, rows)
        assert run.records is not None
        run.records = self.observer.note_reserved(run.records, dry_run=run.options.dry_run)
        at_start = run.options.start
        start, reshapes = at_start and not self._started, at_start and not self._moved
        again = not (start or reshapes or run.options.adopt)
        observed = self.observer.observe(
            run,
            report,
            run.records,
            usages,
            start=start,
            reshapes=reshapes,
            idle=self._idle if again else None,
        )
        run.hint = observed.hint
        return observed

    def _observe_repair(
        self, run: AuditRun, observed: Observed, target: Target
    ) -> AllocationRepair:
        """Read the holders of the node's devices; return the corrections that their allocations
        need. An agent that only observes reports them with the allocations.
        """
        if self.context.observes or self.context.gives_back:
            return AllocationRepair()
        allocations = DeviceAllocations(self.placement_state, observed.uses, self._surpluses)
        why_not = LATER if observed.move else run.unrepaired
        run.repair = allocations.repair(
            run.client, observed.desired.devices, target, why_not=why_not
        )
        return run.repair

    def _newly_stranded(
        self, observed: Observed, target: Target, move: AllocationMove
    ) -> Mapping[ProviderUuid, frozenset[str]]:
        by_driver = self._driver.edits_tree
        return newly_stranded(observed, target, move, self.node.uuid, by_driver=by_driver)

    def _observe_allocations(
        self, run: AuditRun, observed: Observed, target: Target
    ) -> JudgedAllocations:
        """Read who holds what of the node; return which allocations are to be removed, and the
        drift of the others.
        """
        context = self.context
        if context.gives_back:
            # Nobody gains or loses anything: nova-compute judges them from now on.
            return JudgedAllocations()
        if context.observes:
            return self._observed.judged(run.client, observed.records, observed.report.facts)
        allocations = NodeAllocations(
            self.placement_state,
            context.records.consumer_records,
            observed.records,
            context.policy.purge_after,
            # An audit on the mirror reads nobody's turn.
            0 if run.options.on_mirror else context.freshness.consumers,
        )
        # A provider that is to be deleted keeps its allocations until then.
        owned = {*self.placement_state.journal.providers, *target.journal.providers}
        return allocations.judged(run.client, owned, observed.report.facts, run.tried)

    def _plan(self, run: AuditRun, target: Target, move: AllocationMove | None) -> Plan:
        """Return the operations that lead from the view to ``target``; planned again if the server
        offers a newer microversion than before and the first plan had to do without one.
        """
        state, root = self.placement_state, self.node.uuid
        target = with_names_of_others(target, state.view.tree)
        plan = make_plan(state.view, target, state.capabilities, root, move)
        if plan.limited and self.context.server.offers_more(run.client):
            plan = make_plan(state.view, target, state.capabilities, root, move)
        return without_novas_rules(plan, root) if self.context.observes else plan

    # --- the report -------------------------------------------------------------------------------

    def _reported(self, options: AuditOptions, audit: Callable[[AuditRun], None]) -> NodeReport:
        """Return the report of ``audit``, however it ends.

        :raises MirrorInsufficient: the audit is one on the mirror, and needs Placement.
        """
        client = self.context.server.client(sends=not options.on_mirror)
        run, begun = AuditRun(client, options), time.monotonic()
        state: NodeState = "failed"
        try:
            self._check_name()
            audit(run)
            self._look_back(run)
            state, moved = run.state(), run.has_moved
            self._started = self._started or moved
            # What Placement has decides whether something is left to move.
            self._moved = self._moved or (moved and not options.on_mirror)
        except MirrorInsufficient:
            raise
        except AdoptionNeeded as error:
            # Nothing is written, in this pass and in later ones, until the operator decides.
            state, run.tree = "degraded", self._present()
            run.fail(error)
        except AgentError as error:
            # A failed allocation repair is tried again; a failed layout change needs the operator.
            refused = isinstance(error, ReshapeFailed) and run.repair.move is None
            state = "refused" if refused else "failed"
            run.fail(error)
        except Exception as error:
            # A bug, or facts that no code expects: the other nodes are audited all the same.
            LOG.exception("node %s", printable(self.node.name))
            # The remembered state may be the cause of the error, or half updated.
            self.placement_state.forget()
            run.fail(AgentBug.of(error))
        tell_way_out(run, self.node, self.context, self.placement_state)
        run.seconds["total"] = time.monotonic() - begun
        self.records = run.records
        owned = frozenset(self.placement_state.journal.providers)
        consumers = self.placement_state.view.consumers
        report = run.report(self.node, state, self._present(), owned, consumers)
        self._refusal = (
            RefusedAudit.of(report, time.monotonic(), self._refusal) if state == "refused" else None
        )
        return report

    def _present(self) -> PresentTree:
        """Return a copy of the node's tree with the names that Placement has."""
        return self.placement_state.view.subtree(self.node.uuid)

    def _check_name(self) -> None:
        """Raise :class:`InvalidTree` if Placement cannot take the node's name, or the driver knows
        no name of it yet.
        """
        name, context = self.node.name, self.context
        # The host's own name was checked at the start.
        own = name == context.agent or context.server.backend == "embedded"
        if is_unnamed(name) and not (own or context.observes or context.gives_back):
            raise InvalidTree(
                f"driver {self.node.driver} only calls this node {printable(name)}: such a name is "
                "not published",
                "give the machine a name (hostnamectl set-hostname NAME); to publish it all the "
                f"same, set [DEFAULT] host = {printable(name)}",
            )
        if not 1 <= len(name) <= MAX_PROVIDER_NAME:
            what = (
                f"node {printable(name[:60])!r}...: its name has {len(name)} characters, "
                f"Placement takes 1 to {MAX_PROVIDER_NAME}"
            )
            raise InvalidTree(what, "give it another name where the driver finds it")

    def _look_back(self, run: AuditRun) -> None:
        """Save what was only read, and ask for usages if the report shows them."""
        if not run.options.dry_run:
            try:
                self.placement_state.save()
                own = self.context.identity
                if own is not None and own.uuid == self.node.uuid and self.placement_state.mirrored:
                    own.confirm()
                if run.records is not None:
                    records = self.observer.note_reserved(run.records, dry_run=False)
                    run.records = records
                    if run.state() in ("in-sync", "changed"):
                        self.context.records.usage_step.mark_published(
                            self.node.uuid, records.version
                        )
            except RecordConflict as conflict:
                # A claim was made just now: the next audit publishes it too.
                LOG.debug("node %s: %s", printable(self.node.name), conflict.message)
            except StoreError as error:
                # Everything is written in Placement; the next audit writes it to the store.
                run.errors.append(error)
        if run.hint and not self._started:
            LOG.info("node %s: %s", printable(self.node.name), run.hint)
        if run.options.with_usages:
            tree = self._present()
            asked = {provider.uuid: 0 for provider in tree.providers() if provider.inventory}
            run.used = {str(uuid): used for uuid, used in read_usages(run.client, asked).items()}

    # --- outside of an audit ----------------------------------------------------------------------

    def unmoved(self, row: Row | None) -> bool:
        """Return whether Placement has the node as this agent last saw it.

        ``row``: the node's root provider. False for a node with children, because the root alone
        says too little about them.
        """
        tree = self.placement_state.view.tree
        if row is None or len(tree) != 1 or not tree.exists(row.uuid):
            return False
        known = tree.provider(row.uuid)
        return (known.name, known.generation, self.placement_state.view.above) == (
            row.name,
            row.generation,
            row.parent_uuid,
        )

    def count(self, options: AuditOptions) -> None:
        """Count the node from facts and records alone, so that claims work while Placement is
        unavailable.

        Errors are logged.
        """
        if not options.dry_run and (error := self._counted_apart(options).error) is not None:
            LOG.warning("node %s: %s", printable(self.node.name), error)

    def _counted_apart(self, options: AuditOptions) -> _SeparateCount:
        """Count the node from facts and records; errors are in the result."""
        run = AuditRun(self.context.server.client(), options)
        try:
            self._count(run, self._driver.read())
        except AgentError as error:
            return _SeparateCount(error=error)
        except Exception as error:
            # As in an audit: the other nodes are counted all the same.
            LOG.exception("node %s could not be counted", printable(self.node.name))
            return _SeparateCount(error=AgentBug.of(error))
        return _SeparateCount(run.records.usage if run.records is not None else Usage())

    def _paused(self, refused: NodeReport, options: AuditOptions) -> NodeReport:
        """Return the report of a refused node whose pause is not over. The node is still counted
        and keeps its lease.

        ``refused``: the report of the refusal.
        """
        apart = self._counted_apart(options)
        if apart.error is None:
            return replace(refused, usage=apart.usage)
        problem = Problem(
            apart.error.code, apart.error.message, apart.error.remedy, apart.error.fatal
        )
        return replace(refused, errors=(*refused.errors, problem))
