"""The attempts of one audit: each plans anew and flushes, until no other attempt is needed. The
journal is written first, then the plan is sent, then the results are recorded.
"""

import logging
from collections.abc import Callable, Sequence

from agent.audit.allocations import JudgedAllocations
from agent.audit.context import AuditContext, AuditedNode
from agent.audit.devices import log_corrected
from agent.audit.plan_step import PlannedAudit
from agent.audit.run import AuditRun, shrunk_below_usage
from agent.errors import (
    AgentError,
    DriverError,
    GenerationConflict,
    PlacementError,
    RecordConflict,
    ReshapeConflict,
    ReshapeFailed,
)
from agent.model.names import ProviderUuid, printable
from agent.model.operation import AllocationOperation
from agent.placement import clock, codes
from agent.placement.answers import Row
from agent.placement.flush import FlushContext, FlushResult, flush, predict_outcomes
from agent.placement.node_state import NodePlacementState
from agent.placement.plan import Plan
from agent.placement.retry import MAX_ATTEMPTS, conflict_wait
from agent.placement.rival_writers import RivalWriters
from agent.placement.transport import MirrorInsufficient
from agent.tracker.consumer_records import ConsumerRecords

LOG = logging.getLogger(__name__)


class FlushStep:
    """Sends the plans of one node, or foresees in a dry run what sending them would do."""

    def __init__(
        self, context: AuditContext, placement_state: NodePlacementState, root: ProviderUuid
    ) -> None:
        self._context, self._state, self._root = context, placement_state, root

    def foresee(self, run: AuditRun, planned: PlannedAudit) -> None:
        """Report what a dry run would do, and treat it as done for the nodes that follow; not in an
        agent that only observes, because its next pass looks at what is there.
        """
        state, plan = self._state, planned.plan
        outcomes, conflicts = predict_outcomes(
            run.client,
            plan,
            state.capabilities,
            self._root,
            FlushContext(owned=state.journal.providers),
        )
        run.errors += conflicts
        run.outcomes = [*outcomes, *planned.withheld]
        if not self._context.observes:
            state.assume(plan)

    def send(self, run: AuditRun, planned: PlannedAudit) -> FlushResult:
        """Send the plan, and record which evacuations its removals clear."""
        return flush_clearing(
            self._context.records.consumer_records,
            planned.judged,
            lambda: self._flush(run, planned.plan),
        )

    def _flush(self, run: AuditRun, plan: Plan) -> FlushResult:
        """Write the intended ownership to the journal, send the plan, record the results."""
        state = self._state
        if not plan.operations and not plan.withheld and state.keeps(plan.target.journal):
            return FlushResult(state.view, state.capabilities)
        owned = state.journal.providers
        plan, skipped = state.intend(plan)
        refused = [outcome.operation for outcome in skipped]
        before = FlushContext(not run.forgot, refused, owned, dict(state.confirmed))
        try:
            flushed = flush(
                run.client, plan, state.view, state.capabilities, self._root, clock.now(), before
            )
        except ReshapeFailed:
            state.doubt()
            raise
        run.forgot |= flushed.forgot
        run.errors += [*flushed.errors, *([flushed.outage] if flushed.outage else [])]
        if (
            flushed.conflict is None
            and any(error.data.get("limited") for error in flushed.errors)
            and self._context.server.offers_more(run.client)
        ):
            flushed.conflict = GenerationConflict("Placement offers more by now")
        # Of a plan that is thrown away only the done operations are reported: the others come again
        # in the next plan.
        planned_again = flushed.conflict is not None or (
            bool(flushed.held) and run.attempts < MAX_ATTEMPTS
        )
        run.outcomes += [
            outcome for outcome in flushed.outcomes if outcome.status == "done" or not planned_again
        ]
        run.outcomes += skipped
        run.tried |= {
            outcome.operation.old.consumer
            for outcome in flushed.outcomes
            if isinstance(outcome.operation, AllocationOperation) and outcome.status == "failed"
        }
        # Last, because the outcomes are reported even if they cannot be recorded.
        state.record(plan, flushed)
        return flushed


def flush_clearing(
    consumer_records: ConsumerRecords, judged: JudgedAllocations, flush: Callable[[], FlushResult]
) -> FlushResult:
    """Flush, and write down which evacuations have nothing left here.

    An evacuation justifies one removal only, also if the process ends between the removal and its
    note. So the consumer generation that guards the removal is written down before: a consumer that
    still has this generation afterwards was not written.
    """
    consumer_records.clear_evacuations(judged.cleared)
    guards = {operation.old.consumer: operation.old.generation for operation in judged.operations}
    consumer_records.note_clearing(
        {
            uuid: guards[consumer]
            for consumer, some in judged.used_up.items()
            if consumer in guards
            for uuid in some
        }
    )
    # If this raises, the next pass sees by the generations what was done.
    flushed = flush()
    done = {
        outcome.operation.old.consumer
        for outcome in flushed.outcomes
        if isinstance(outcome.operation, AllocationOperation) and outcome.status == "done"
    }
    consumer_records.clear_evacuations(
        {uuid for consumer, some in judged.used_up.items() if consumer in done for uuid in some}
    )
    if flushed.outage is None and not any(map(codes.may_be_applied, flushed.errors)):
        # A later change of these consumers is not this agent's.
        consumer_records.note_clearing(
            {
                uuid: None
                for consumer, some in judged.used_up.items()
                if consumer not in done
                for uuid in some
            }
        )
    return flushed


def _planned_on_mirror(
    plan: Callable[[Sequence[Row] | None], PlannedAudit],
) -> PlannedAudit:
    """Return the plan of an attempt on the mirror. A plan that fails, but not by the driver, may
    succeed with what Placement has by now.

    :raises MirrorInsufficient: Placement has to be asked.
    """
    try:
        planned = plan(None)
    except DriverError:
        raise
    except AgentError as error:
        raise MirrorInsufficient(error.message) from error
    if planned.plan.operations or planned.withheld:
        raise MirrorInsufficient("there is something to do")
    return planned


TRIED_AGAIN = "it is tried again by itself, later each time, and at once after a reload"


class Attempts:
    """Repeats the attempts of the audits of one node."""

    def __init__(
        self,
        node: AuditedNode,
        context: AuditContext,
        placement_state: NodePlacementState,
        rivals: RivalWriters,
    ) -> None:
        self._node, self._context, self._state = node, context, placement_state
        self._flush, self._rivals = FlushStep(context, placement_state, node.uuid), rivals

    def repeat(
        self,
        run: AuditRun,
        rows: Sequence[Row] | None,
        *,
        count: Callable[[], bool],
        plan: Callable[[Sequence[Row] | None], PlannedAudit],
    ) -> None:
        """Repeat attempts until one is the last one needed. ``count`` returns whether what was read
        of Placement before is not valid any more.
        """
        for run.attempts in range(1, MAX_ATTEMPTS + 1):
            # In each attempt, because allocations made in between are on record by now.
            with run.step("usage"):
                forgotten = count()
            known = rows if run.attempts == 1 and not forgotten else None
            if self._attempt(run, known, plan):
                return

    def _attempt(
        self,
        run: AuditRun,
        rows: Sequence[Row] | None,
        plan: Callable[[Sequence[Row] | None], PlannedAudit],
    ) -> bool:
        """Make one attempt, from refreshing the mirror to the end of the flush. Return whether it
        was the last one needed.
        """
        try:
            planned = _planned_on_mirror(plan) if run.options.on_mirror else plan(rows)
            run.plan(planned)
            if run.options.dry_run:
                self._flush.foresee(run, planned)
                return True
            with run.step("flush"):
                flushed = self._flush.send(run, planned)
                if not (planned.removes_node or planned.exclusive):
                    # An exclusive node is reserved while it has a consumer, so its usage exceeds
                    # its capacity.
                    held = self._state.journal.held
                    run.drift += shrunk_below_usage(run.client, flushed, held)
        except GenerationConflict as conflict:
            return self._try_again(run, conflict)
        except RecordConflict as conflict:
            # Another agent wrote the journal: the next count shows which agent has the node.
            self._state.forget()
            return self._try_again(run, conflict)
        except ReshapeFailed as error:
            if run.repair.move is None or run.attempts == MAX_ATTEMPTS:
                raise
            # The repair is left out of the next attempt, so that the other changes do not wait for
            # it.
            run.unrepaired = f"{error.message}; {error.remedy}" if error.remedy else error.message
            return False
        return self._conclude(run, planned, flushed)

    def _conclude(self, run: AuditRun, planned: PlannedAudit, flushed: FlushResult) -> bool:
        """Return whether the attempt was the last one needed."""
        self._rivals.record_sent(flushed.outcomes)
        log_corrected(planned.repair, flushed.outcomes)
        if flushed.conflict is not None:
            if (
                isinstance(flushed.conflict, ReshapeConflict)
                and planned.repair.move is not None
                and run.attempts == MAX_ATTEMPTS - 1
            ):
                # The last attempt is made without the repair, for all other changes.
                run.unrepaired = flushed.conflict.message
            return self._try_again(run, flushed.conflict)
        run.outcomes += planned.withheld
        # Another attempt is needed where providers in use could not be deleted (they are planned as
        # held), or where devices were removed to be created at another place. A node that is gone
        # is tried again if Placement no longer had all of its tree, because no next pass will.
        again = planned.removes_node and flushed.missing and run.attempts < MAX_ATTEMPTS
        return not (flushed.held or again or (planned.recreates and flushed.complete))

    def _try_again(self, run: AuditRun, conflict: AgentError) -> bool:
        """Wait before the next attempt. A conflict is normal on a busy host: everything is read and
        planned again, up to a limit.

        :raises GenerationConflict: this was the last attempt.
        :raises ReshapeFailed: this was the last attempt, and a reshape met the conflict.
        :raises PlacementError: cancelled while waiting.
        """
        name = printable(self._node.name)
        LOG.debug("node %s, attempt %s: %s", name, run.attempts, conflict.message)
        last = run.attempts == MAX_ATTEMPTS
        if last and isinstance(conflict, ReshapeConflict) and run.repair.move is None:
            raise ReshapeFailed(
                f"{MAX_ATTEMPTS} attempts failed, last: {conflict.message}", TRIED_AGAIN
            ) from conflict
        if last:
            what = (
                f"{name}: {MAX_ATTEMPTS} attempts met changes by others, last: {conflict.message}"
            )
            raise GenerationConflict(what, "it is tried again in the next pass") from conflict
        if conflict_wait(run.attempts, self._context.cancelled):
            raise PlacementError("cancelled while waiting to try again") from conflict
        return False
