"""Sending the plan of an audit: the journal is written first, then the plan is sent, then the
results are recorded; and the conflicts that call for another attempt.
"""

import logging
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from agent.audit.context import AuditContext, AuditedNode
from agent.audit.observation import Judged, PlanOutcome
from agent.audit.planning import told
from agent.audit.run import AuditRun, shrunk_below_usage
from agent.errors import (
    AgentError,
    GenerationConflict,
    PlacementError,
    ProviderNameConflict,
    RecordConflict,
    ReshapeConflict,
    ReshapeFailed,
)
from agent.model.mirror import ServerCapabilities
from agent.model.names import ConsumerUuid, ProviderUuid, name_first, printable
from agent.model.operation import (
    AllocationOperation,
    CreateProvider,
    ProviderRef,
    RenameProvider,
    Reshape,
)
from agent.model.report import OperationStatus, Outcome
from agent.placement import clock
from agent.placement.client import PlacementClient
from agent.placement.exchange import MAX_ATTEMPTS, MirrorInsufficient, conflict_wait
from agent.placement.flush import Flush, FlushResult
from agent.placement.node_state import NodePlacementState
from agent.placement.plan import Plan, depends
from agent.placement.rival_writers import RivalWriters
from agent.placement.sending import Attempt, attempted, find_obstacle, is_ours, name_conflict
from agent.tracker.consumer_records import ConsumerRecords

LOG = logging.getLogger(__name__)

Result = TypeVar("Result")

Steps = Generator[Flush | None, None, Result]
"""What is done in steps. The flush of a new node stops before its journal is written, before the
node is created, before its inventory is written, and before the result is recorded; so that this
can be done for many nodes together.
"""

TRIED_AGAIN = "it is tried again by itself, later each time, and at once after a reload"


class Flushing:
    """Sends the plans of one node, or foresees in a dry run what sending them would do; and says
    whether another attempt is needed.
    """

    def __init__(
        self,
        node: AuditedNode,
        context: AuditContext,
        placement_state: NodePlacementState,
        rivals: RivalWriters,
    ) -> None:
        self._node, self._context, self._state = node, context, placement_state
        self._rivals = rivals

    def flush(self, run: AuditRun, outcome: PlanOutcome) -> Steps[bool]:
        """Send the plan without what another writer would change back now, or in a dry run foresee
        what that would do. Return whether no other attempt is needed. Before another one for a
        conflict there is a wait, see :meth:`conflicts`.

        :raises MirrorInsufficient: an audit on the mirror has something to do.
        :raises ReshapeFailed: Placement refused to move allocations; the operations before it are
            done.
        """
        with run.step("plan"):
            assert outcome.plan is not None
            plan, withheld = self._rivals.withhold(outcome.plan)
        if run.options.on_mirror and (withheld or plan.operations):
            raise MirrorInsufficient("there is something to do")
        rivals = plan.drift if plan is not outcome.plan else ()
        run.take_plan(replace(outcome, plan=plan, drift=(*outcome.drift, *rivals)))
        if run.options.dry_run:
            self._foresee(run, plan)
            run.outcomes += withheld
            return True
        with run.step("flush"):
            flushed = yield from self._send(run, outcome, plan)
        self._rivals.record_sent(flushed.outcomes)
        if flushed.failed is not None:
            raise flushed.failed
        if (move := outcome.repair.move) is not None:
            log_corrected(move.changed, flushed.outcomes)
        if flushed.conflict is not None:
            if (
                isinstance(flushed.conflict, ReshapeConflict)
                and outcome.repair.move is not None
                and run.attempts == MAX_ATTEMPTS - 1
            ):
                # The last attempt is made without the repair, for all other changes.
                run.unrepaired = told(flushed.conflict)
            self._try_again(run, flushed.conflict)
            return False
        run.outcomes += withheld
        # Another attempt is needed where providers in use could not be deleted (they are planned as
        # held), or where devices were removed to be created at another place. A node that is gone
        # is tried again if Placement no longer had all of its tree, because no next pass will.
        again = outcome.removes_node and flushed.missing and run.attempts < MAX_ATTEMPTS
        recreates = outcome.shaped is not None and outcome.shaped.anew and flushed.complete
        return not (flushed.held or again or recreates)

    def _foresee(self, run: AuditRun, plan: Plan) -> None:
        """Report what a dry run would do, and treat it as done for the nodes that follow; not in an
        agent that only observes, because its next pass looks at what is there.
        """
        state = self._state
        run.outcomes, conflicts = predict_outcomes(
            run.client,
            plan,
            state.capabilities,
            self._node.uuid,
            state.journal.providers,
        )
        run.errors += conflicts
        if not self._context.observes:
            state.assume(plan)

    def _send(self, run: AuditRun, outcome: PlanOutcome, plan: Plan) -> Steps[FlushResult]:
        """Write the intended ownership to the journal, send the plan, record the results, and which
        evacuations the removals of the plan clear.
        """
        state, judged = self._state, outcome.judged
        if judged.unknown_since is not None:
            state.remember_unknown(judged.unknown_since)
        records = self._context.tracking.consumer_records
        usage_step = self._context.tracking.usage_step
        note_clearing(records, judged)
        before, is_new = state.journal, plan.is_of_new_node
        if is_new:
            yield None
        usage_step.add_new_node(self._node.uuid)
        if not plan.operations and not plan.withheld and state.keeps(plan.target.journal):
            flushed = FlushResult(state.view, state.capabilities)
        else:
            plan, skipped = state.intend(plan)
            # If this raises, the next pass sees by the generations what was done.
            flush = Flush(
                run.client,
                plan,
                state.view,
                state.capabilities,
                self._node.uuid,
                clock.now(),
                may_forget=not run.forgot,
                refused=[left_out.operation for left_out in skipped],
                owned=before.providers,
                confirmed=dict(state.confirmed),
            )
            if is_new:
                try:
                    yield flush
                except AgentError as error:
                    # Nothing was written; another agent may have written records or journal.
                    if run.records is not None and run.records.created:
                        usage_step.forget(self._node.uuid)
                    if isinstance(error, RecordConflict):
                        state.forget()
                    else:
                        state.withdraw(before)
                    raise
                flush.create()
                yield flush
            flushed = flush.run()
            if is_new:
                yield flush
            self._report(run, flushed, skipped)
            # Last, because the outcomes are reported even if they cannot be recorded.
            state.record(plan, flushed)
        note_cleared(records, judged, flushed)
        if not (outcome.removes_node or (run.facts is not None and run.facts.exclusive)):
            # An exclusive node is reserved while it has a consumer, so its usage exceeds its
            # capacity.
            run.drift += shrunk_below_usage(run.client, flushed, state.journal.held)
        return flushed

    def _report(self, run: AuditRun, flushed: FlushResult, skipped: Sequence[Outcome]) -> None:
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
            run.attempts < MAX_ATTEMPTS
            and (
                bool(flushed.held)
                or (flushed.failed is not None and run.planned.repair.move is not None)
            )
        )
        run.outcomes += [
            sent for sent in flushed.outcomes if sent.status == "done" or not planned_again
        ]
        run.outcomes += skipped
        run.tried |= {
            sent.operation.old.consumer
            for sent in flushed.outcomes
            if isinstance(sent.operation, AllocationOperation) and sent.status == "failed"
        }

    # --- another attempt --------------------------------------------------------------------------

    @contextmanager
    def conflicts(self, run: AuditRun) -> Iterator[None]:
        """Make a conflict in the block a reason for another attempt, after a wait. A conflict is
        normal on a busy host: everything is read and planned again, up to a limit.

        :raises GenerationConflict: this was the last attempt.
        :raises ReshapeFailed: this was the last attempt, and a reshape met the conflict.
        :raises PlacementError: cancelled while waiting.
        """
        try:
            yield
        except GenerationConflict as conflict:
            self._try_again(run, conflict)
        except RecordConflict as conflict:
            # Another agent wrote the journal: the next count shows which agent has the node.
            self._state.forget()
            self._try_again(run, conflict)
        except ReshapeFailed as error:
            if run.planned.repair.move is None or run.attempts == MAX_ATTEMPTS:
                raise
            # The repair is left out of the next attempt, so that the other changes do not wait for
            # it.
            run.unrepaired = told(error)

    def _try_again(self, run: AuditRun, conflict: AgentError) -> None:
        name = printable(self._node.name)
        LOG.debug("node %s, attempt %s: %s", name, run.attempts, conflict.message)
        last = run.attempts == MAX_ATTEMPTS
        if last and isinstance(conflict, ReshapeConflict) and run.planned.repair.move is None:
            raise ReshapeFailed(
                f"{MAX_ATTEMPTS} attempts failed, last: {conflict.message}",
                "; ".join(filter(None, (conflict.remedy, TRIED_AGAIN))),
            ) from conflict
        if last:
            what = (
                f"{name}: {MAX_ATTEMPTS} attempts met changes by others, last: {conflict.message}"
            )
            raise GenerationConflict(what, "it is tried again in the next pass") from conflict
        if conflict_wait(run.attempts, self._context.cancelled):
            raise PlacementError("cancelled while waiting to try again") from conflict


def note_clearing(consumer_records: ConsumerRecords, judged: Judged) -> None:
    """Write down, before the removals of ``judged`` are sent, which evacuations have nothing left
    here once they are done.

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


def note_cleared(consumer_records: ConsumerRecords, judged: Judged, flushed: FlushResult) -> None:
    """Write down which evacuations have nothing left here after the flush."""
    done = {
        outcome.operation.old.consumer
        for outcome in flushed.outcomes
        if isinstance(outcome.operation, AllocationOperation) and outcome.status == "done"
    }
    consumer_records.clear_evacuations(
        {uuid for consumer, some in judged.used_up.items() if consumer in done for uuid in some}
    )
    if flushed.outage is None and not any(error.outcome_unknown for error in flushed.errors):
        # A later change of these consumers is not this agent's.
        consumer_records.note_clearing(
            {
                uuid: None
                for consumer, some in judged.used_up.items()
                if consumer not in done
                for uuid in some
            }
        )


def predict_outcomes(
    client: PlacementClient,
    plan: Plan,
    capabilities: ServerCapabilities,
    root: ProviderUuid,
    owned: Collection[ProviderUuid],
) -> tuple[list[Outcome], list[PlacementError]]:
    """Return the outcomes of ``plan`` as far as names and uuids decide them, and the errors: what a
    dry run shows. Only GETs are sent.

    :param owned: the providers that are the agent's.
    """

    def predict(operation: CreateProvider | RenameProvider) -> Attempt:
        if isinstance(operation, RenameProvider):
            return Attempt(operation, error=_conflict_of_rename(client, operation))
        ours = is_ours(operation, ProviderRef(root, plan.target.tree.name_of(root)), owned)
        found = find_obstacle(client, operation, ours=ours, capabilities=capabilities)
        if isinstance(found, PlacementError):
            return Attempt(operation, error=found)
        return Attempt(operation, instead=found)

    named = [
        operation
        for operation in plan.operations
        if isinstance(operation, RenameProvider)
        or (isinstance(operation, CreateProvider) and operation.parent is not None)
    ]
    predicted = {
        attempt.operation.key: attempt
        for attempt in client.exchange.each(lambda operation: attempted(operation, predict), named)
    }
    failed = [attempt.operation for attempt in predicted.values() if attempt.error is not None]
    outcomes = []
    for operation in plan.operations:
        attempt = predicted.get(operation.key, Attempt(operation))
        waits = attempt.error is None and depends(operation, failed, plan.target.tree)
        failed += [operation] if waits and isinstance(operation, CreateProvider | Reshape) else []
        status: OperationStatus = "failed" if attempt.error else "skipped" if waits else "planned"
        outcomes.append(replace(attempt.outcome(), status=status))
    return outcomes, [attempt.error for attempt in predicted.values() if attempt.error is not None]


def _conflict_of_rename(
    client: PlacementClient, operation: RenameProvider
) -> ProviderNameConflict | None:
    holder = client.provider_named(operation.provider.name)
    # A server that compares names without case answers with the provider itself.
    if holder is None or holder.uuid == operation.provider.uuid:
        return None
    return name_conflict(operation.provider, holder)


def log_corrected(consumers: Collection[ConsumerUuid], outcomes: Iterable[Outcome]) -> None:
    """Log which ``consumers`` had their allocations of devices corrected."""
    written = {
        consumer
        for outcome in outcomes
        if outcome.status == "done" and isinstance(outcome.operation, Reshape)
        for consumer in outcome.operation.allocations
    }
    if corrected := sorted(written.intersection(consumers)):
        LOG.info("allocations of devices were corrected for instances %s", name_first(corrected))
