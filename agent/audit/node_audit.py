"""One audit of one node: observe → plan → flush."""

import logging
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace

from agent.audit.context import AuditContext, AuditedNode, AuditOptions
from agent.audit.flushing import Flushing, Steps
from agent.audit.name_conflict import tell_way_out
from agent.audit.observation import LastOutcome, Observation, PlanOutcome, last_outcome
from agent.audit.planning import plan_audit, plan_removal
from agent.audit.reading import Reader
from agent.audit.remembered import MisplacedGuests, Surpluses
from agent.audit.run import AuditRun, RefusedAudit
from agent.errors import (
    AdoptionNeeded,
    AgentBug,
    AgentError,
    DriverError,
    InvalidTree,
    RecordConflict,
    ReshapeFailed,
    StoreError,
)
from agent.model.finding import AuditState, Problem
from agent.model.names import MAX_PROVIDER_NAME, is_unnamed, printable
from agent.model.report import NodeReport, Usage
from agent.placement import clock
from agent.placement.answers import Row
from agent.placement.exchange import MAX_ATTEMPTS, MirrorInsufficient
from agent.placement.node_state import NodePlacementState
from agent.placement.rival_writers import RivalWriters
from agent.provider_config.applying import Key
from agent.tracker.node_state import NodeView
from agent.tree.reshape.moving import MOVED_BY

LOG = logging.getLogger(__name__)


@contextmanager
def _on_mirror() -> Iterator[None]:
    """Have what fails on the mirror, but not by the driver, tried again with what Placement has.

    :raises MirrorInsufficient: Placement has to be asked.
    """
    try:
        yield
    except DriverError:
        raise
    except AgentError as error:
        raise MirrorInsufficient(error.message) from error


class NodeAudit:
    """Audits one node repeatedly and keeps state between audits. Not thread-safe: one audit at a
    time.
    """

    def __init__(self, node: AuditedNode, context: AuditContext) -> None:
        self.node, self.context = node, context
        self.placement_state = NodePlacementState(context.server, node.uuid, node.name)
        self._reader = Reader(node, context, self.placement_state, Surpluses(time.monotonic))
        self._flushing = Flushing(node, context, self.placement_state, RivalWriters(time.monotonic))
        # ``_started``: one audit has passed the checks of a start. ``_moved``: every reshape that
        # only a start (or the audit after a takeover) may do is done.
        self._started = self._moved = False
        self._misplaced = MisplacedGuests()
        self._refusal: RefusedAudit | None = None
        self._report: tuple[NodeReport, Hashable, float] | None = None
        """That of the last audit, the driver's mark then, and until when it counts; None if another
        audit could find something to do.
        """
        self._last: LastOutcome | None = None
        self.sighted: frozenset[Key] | None = None
        """The entries of the operator's files that match a provider here; None until a tree was
        seen.
        """
        self.records: NodeView | None = None
        """What the records showed in the last audit; None if the node could not be counted."""

    # --- audits -----------------------------------------------------------------------------------

    def run(self, options: AuditOptions, rows: Sequence[Row] | None = None) -> Steps[NodeReport]:
        """Audit the node in steps and return its report. Never raises an :class:`AgentError`:
        errors are in the report. An audit on the mirror that needs Placement begins anew and asks
        it.

        ``rows``: the node's structure in Placement, if one list for many nodes already brought it.
        """
        if (
            self._refusal is not None
            and not (options.reread or options.asked)
            and time.monotonic() < self._refusal.until
        ):
            # The node is still counted and keeps its lease.
            refused = self._refusal.report
            try:
                return replace(refused, usage=self._counted_apart(options))
            except AgentError as error:
                problem = Problem(error.code, error.message, error.remedy, error.fatal)
                return replace(refused, errors=(*refused.errors, problem))
        if options.on_mirror:
            with suppress(MirrorInsufficient):
                return (yield from self._reported(options, lambda run: self._audit(run, None)))
            options = replace(options, on_mirror=False)
        return (yield from self._reported(options, lambda run: self._audit(run, rows)))

    def remove(self, options: AuditOptions, rows: Sequence[Row] | None = None) -> Steps[NodeReport]:
        """Delete the providers of ours in the tree of a node of which the driver says that it was
        deleted. Otherwise as :meth:`run`.
        """
        return self._reported(options, lambda run: self._remove(run, rows))

    # --- one audit: observe → plan → flush, again as long as changes by others call for it --------

    def _audit(self, run: AuditRun, rows: Sequence[Row] | None) -> Steps[None]:
        with run.step("facts"):
            run.facts, capabilities = self._reader.facts()
        for run.attempts in range(1, MAX_ATTEMPTS + 1):
            # In each attempt, because allocations made in between are on record by now.
            with run.step("usage"):
                forgotten = self._count(run)
            known = rows if run.attempts == 1 and not forgotten else None
            with self._flushing.conflicts(run):
                with _on_mirror() if run.options.on_mirror else nullcontext():
                    with run.step("tree"):
                        seen = self._reader.observe(
                            run,
                            capabilities,
                            known,
                            first=run.options.start and not self._started,
                            reshapes=run.options.start and not self._moved,
                            last=self._last,
                        )
                    with run.step("plan"):
                        while (outcome := plan_audit(seen)).needs is not None:
                            seen = self._reader.read(run.client, seen, outcome)
                        outcome = self._planned(seen, outcome)
                if (yield from self._flushing.flush(run, outcome)):
                    return

    def _remove(self, run: AuditRun, rows: Sequence[Row] | None) -> Steps[None]:
        for run.attempts in range(1, MAX_ATTEMPTS + 1):
            with run.step("usage"):
                if not run.options.dry_run:
                    self.context.tracking.usage_step.mark_deleted(self.node.uuid)
            with self._flushing.conflicts(run):
                with run.step("tree"):
                    known = rows if run.attempts == 1 else None
                    self._reader.refresh(run.client, run.reading_options, known)
                with run.step("plan"):
                    outcome = plan_removal(self._reader.deleted(run))
                if (yield from self._flushing.flush(run, outcome)):
                    return

    def _planned(self, seen: Observation, outcome: PlanOutcome) -> PlanOutcome:
        """Remember what followed from the observation. Return it with the guests that have been
        misplaced for long.
        """
        assert outcome.shaped is not None
        self.sighted = outcome.shaped.sighted
        self._last = last_outcome(seen, outcome)
        if self.context.gives_back:
            return outcome
        tree = outcome.shaped.plan.target.tree
        misplaced = self._misplaced.drift(seen.records.state, tree, clock.now())
        return replace(outcome, drift=(*outcome.drift, *misplaced)) if misplaced else outcome

    # --- what an attempt begins with --------------------------------------------------------------

    def _count(self, run: AuditRun) -> bool:
        """Count what is used and claimed on the node. Return whether another agent may have had
        the node since the last audit.
        """
        self.context.tracking.usage_step.add_new_node(self.node.uuid)
        before = self.records.state.displaced if self.records is not None else frozenset[str]()
        taken_over = self._reader.count(run, first=run.options.start and not self._started)
        assert run.records is not None
        if taken_over or before - run.records.state.displaced:
            # The other agent may have had another layout; guests whose cells are known again may
            # hold something of cells that are gone.
            self._moved = False
        unpublished = not run.options.dry_run and run.records.state.node.dirty
        if run.options.on_mirror and (taken_over or unpublished):
            raise MirrorInsufficient("records are not published yet")
        return taken_over

    # --- the report -------------------------------------------------------------------------------

    def _reported(
        self, options: AuditOptions, audit: Callable[[AuditRun], Steps[None]]
    ) -> Steps[NodeReport]:
        """Return the report of ``audit``, however it ends.

        :raises MirrorInsufficient: the audit is one on the mirror, and needs Placement.
        """
        client = self.context.server.client(sends=not options.on_mirror)
        run, begun = AuditRun(client, options), time.monotonic()
        state: AuditState = "failed"
        try:
            self._check_name()
            yield from audit(run)
            self._look_back(run)
            state, moved = run.state(), run.has_moved
            self._started = self._started or moved
            # What Placement has decides whether something is left to move, and what is not known
            # yet moves later.
            known = run.facts is None or MOVED_BY.isdisjoint(run.facts.incomplete)
            self._moved = self._moved or (moved and known and not options.on_mirror)
        except MirrorInsufficient:
            raise
        except AdoptionNeeded as error:
            # Nothing is written, in this pass and in later ones, until the operator decides.
            state, run.tree = "degraded", self.placement_state.view.subtree(self.node.uuid)
            run.fail(error)
        except AgentError as error:
            # A failed allocation repair is tried again; a failed layout change needs the operator.
            refused = isinstance(error, ReshapeFailed) and run.planned.repair.move is None
            state = "refused" if refused else "failed"
            run.fail(error)
        except Exception as error:
            # A bug, or facts that no code expects: the other nodes are audited all the same.
            LOG.exception("node %s", printable(self.node.name))
            # The remembered state may be the cause of the error, or half updated.
            self.placement_state.forget()
            run.fail(AgentBug.of(error))
        try:
            self.context.tracking.usage_step.add_new_node(self.node.uuid)
        except AgentError as error:
            run.errors.append(error)
        for conflict in run.conflicts_of(self.node.uuid):
            tell_way_out(run, conflict, self.node, self.context, self.placement_state)
        run.seconds["total"] = time.monotonic() - begun
        self.records = run.records
        owned = frozenset(self.placement_state.journal.providers)
        consumers = self.placement_state.view.consumers
        report = run.report(
            self.node,
            state,
            self.placement_state.view.subtree(self.node.uuid),
            owned,
            consumers,
            observes=self.context.observes,
        )
        self._refusal = (
            RefusedAudit.of(report, time.monotonic(), self._refusal) if state == "refused" else None
        )
        return report

    def _check_name(self) -> None:
        """Raise :class:`InvalidTree` if Placement cannot take the node's name, or the driver knows
        no name of it yet.
        """
        name, context = self.node.name, self.context
        # The host's own name was checked at the start.
        own = name == context.agent or context.server.backend == "embedded"
        if not (own or context.observes or context.gives_back) and is_unnamed(name):
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
                    records = self._reader.note_reserved(run.records, dry_run=False)
                    run.records = records
                    if run.state() in ("in-sync", "changed"):
                        self.context.tracking.usage_step.mark_published(
                            self.node.uuid, records.version
                        )
            except RecordConflict as conflict:
                # A claim was made just now: the next audit publishes it too.
                LOG.debug("node %s: %s", printable(self.node.name), conflict.message)
            except StoreError as error:
                # Everything is written in Placement; the next audit writes it to the store.
                run.errors.append(error)
        if not self._started and (shaped := run.planned.shaped) is not None:
            for text in filter(None, (shaped.layout, shaped.hint)):
                LOG.info("node %s: %s", printable(self.node.name), text)
        if run.options.with_usages:
            tree = self.placement_state.view.subtree(self.node.uuid)
            asked = [provider.uuid for provider in tree.providers() if provider.inventory]
            used = run.client.exchange.each(run.client.usages, asked)
            run.in_placement = dict(zip(map(str, asked), used, strict=True))

    # --- outside of an audit ----------------------------------------------------------------------

    def remember(self, report: NodeReport, mark: Hashable, until: float) -> None:
        """Remember the report of an audit with nothing to tell, before which the driver had marked
        the node so. ``until``: by the monotonic clock, in seconds.
        """
        self._report = None
        if report.state in ("in-sync", "changed") and not (report.drift or report.errors):
            same = replace(
                report, state="in-sync", attempts=1, outcomes=(), requests={}, seconds={}
            )
            self._report = same, mark, until

    def last_report(self, mark: Hashable, now: float) -> NodeReport | None:
        """Return the last report if the driver marks the node as it did then; None if the node has
        to be audited.
        """
        if self._report is None:
            return None
        report, known, until = self._report
        return report if known == mark and now < until else None

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
        if not options.dry_run:
            try:
                self._counted_apart(options)
            except AgentError as error:
                LOG.warning("node %s: %s", printable(self.node.name), error)

    def _counted_apart(self, options: AuditOptions) -> Usage:
        """Count the node from facts and records. Return its usage.

        :raises AgentError: it cannot be counted.
        """
        run = AuditRun(self.context.server.client(), options)
        try:
            run.facts, _ = self._reader.facts()
            self._count(run)
            self.context.tracking.usage_step.add_new_node(self.node.uuid)
        except AgentError:
            raise
        except Exception as error:
            # As in an audit: the other nodes are counted all the same.
            LOG.exception("node %s could not be counted", printable(self.node.name))
            raise AgentBug.of(error) from error
        return run.records.usage if run.records is not None else Usage()
