"""The attempts of one audit: each plans anew and flushes, until no other one is needed."""

import logging
from collections.abc import Callable, Sequence

from agent.audit.context import AuditContext, AuditedNode
from agent.audit.devices import log_corrected
from agent.audit.flush_step import FlushStep
from agent.audit.plan_step import PlannedAudit
from agent.audit.run import AuditRun, overcommitted
from agent.errors import (
    AgentError,
    GenerationConflict,
    PlacementError,
    RecordConflict,
    ReshapeConflict,
    ReshapeFailed,
)
from agent.model.names import printable
from agent.placement.answers import Row
from agent.placement.flush import FlushResult
from agent.placement.node_state import NodePlacementState
from agent.placement.retry import MAX_ATTEMPTS, conflict_wait
from agent.placement.rival_writers import RivalWriters

LOG = logging.getLogger(__name__)

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
            planned = plan(rows)
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
                    run.drift += overcommitted(run.client, flushed, held)
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
