"""The flush of one attempt: the journal is written first, then the plan is sent, then what came of
it is recorded.
"""

from collections.abc import Callable

from agent.audit.allocations import JudgedAllocations
from agent.audit.context import AuditContext
from agent.audit.plan_step import PlannedAudit
from agent.audit.run import AuditRun
from agent.errors import GenerationConflict, ReshapeFailed
from agent.model.names import ProviderUuid
from agent.model.operation import AllocationOperation
from agent.placement import clock, codes
from agent.placement.flush import FlushContext, FlushResult, flush, predict_outcomes
from agent.placement.node_state import NodePlacementState
from agent.placement.plan import Plan
from agent.placement.retry import MAX_ATTEMPTS
from agent.tracker.consumer_records import ConsumerRecords


class FlushStep:
    """Sends the plans of one node, or foresees in a dry run what sending them would do."""

    def __init__(
        self, context: AuditContext, placement_state: NodePlacementState, root: ProviderUuid
    ) -> None:
        self._context, self._state, self._root = context, placement_state, root

    def foresee(self, run: AuditRun, planned: PlannedAudit) -> None:
        """Report what a dry run would do, and treat it as done for the nodes that follow."""
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
        owned = state.journal.providers
        plan, skipped = state.intend(plan)
        before = FlushContext(not run.forgot, [outcome.operation for outcome in skipped], owned)
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
