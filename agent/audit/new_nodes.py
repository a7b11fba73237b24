"""The new nodes of a pass: each stops once it is planned. Many write their inventories in one
request, and what the store keeps of them in one transaction.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from agent.audit.flushing import Steps
from agent.errors import AgentError
from agent.http.bounded import LastCalls
from agent.model.finding import Problem
from agent.model.report import NodeReport
from agent.placement.client import PlacementClient
from agent.placement.flush import Flush, write_together
from agent.placement.server import PlacementStorage

MANY = 50


class AuditSteps:
    """One audit in its steps: ``flush`` is what it stopped before, ``report`` its result.

    ``forget`` drops what the process remembers of the node's tree.
    """

    def __init__(self, steps: Steps[NodeReport], forget: Callable[[], None]) -> None:
        self._steps, self._forget = steps, forget
        self.flush: Flush | None = None
        self.report: NodeReport | None = None

    def go_on(self) -> None:
        """Do the next step, if one is left."""
        if self.report is None:
            self._advance(lambda: next(self._steps))

    def end_failed(self, error: AgentError) -> None:
        """Do all steps that are left after the last one came to nothing."""
        if self.report is None:
            self._advance(lambda: self._steps.throw(error))
        self.end()

    def end_unsaved(self, error: AgentError) -> None:
        """Do all steps that are left, and report that the store could not take what was written.
        The next audit reads it anew.
        """
        self._forget()
        report = self.end()
        problem = Problem(error.code, error.message, error.remedy, error.fatal)
        self.report = replace(report, state="degraded", errors=(*report.errors, problem))

    def _advance(self, advance: Callable[[], Flush | None]) -> None:
        try:
            self.flush = advance()
        except StopIteration as end:
            self.flush, self.report = None, end.value

    def end(self) -> NodeReport:
        """Do all steps that are left."""
        while self.report is None:
            self.go_on()
        return self.report


class NewNodes:
    """Audits of new nodes that wait until there are ``MANY``. Threads share it."""

    def __init__(
        self, client: PlacementClient, storage: PlacementStorage, may_write: Callable[[], None]
    ) -> None:
        """Begin with none. ``may_write`` raises an error if this agent must not write any more."""
        self._client, self._storage, self._may_write = client, storage, may_write
        self._lock = threading.Lock()
        self._waiting: list[AuditSteps] = []
        self._closed = False

    def add(self, audit: AuditSteps) -> None:
        """Have the audit wait, or end it together with those that wait."""
        with self._lock:
            self._waiting.append(audit)
            ready = self._take() if self._closed or len(self._waiting) == MANY else []
        self._end(ready)

    def close(self) -> None:
        """End the audits that wait. Others that come do not wait."""
        with self._lock:
            self._closed, ready = True, self._take()
        self._end(ready)

    def _take(self) -> list[AuditSteps]:
        waiting, self._waiting = self._waiting, []
        return waiting

    def _end(self, audits: list[AuditSteps]) -> None:
        if audits:
            self._may_write()
            with LastCalls.apart():
                self._write(audits)

    def _write(self, audits: list[AuditSteps]) -> None:
        each = self._client.exchange.each
        try:
            with self._storage.together():
                for audit in audits:
                    audit.go_on()
        except AgentError as error:
            each(partial(AuditSteps.end_failed, error=error), audits)
            return
        each(AuditSteps.go_on, audits)
        write_together(self._client, [one.flush for one in audits if one.flush is not None])
        each(AuditSteps.go_on, audits)
        # The others may have more to send, which is not to wait for the transaction.
        whole = [one for one in audits if one.flush is not None and one.flush.result.complete]
        try:
            with self._storage.together():
                for audit in whole:
                    audit.go_on()
        except AgentError as error:
            for audit in whole:
                audit.end_unsaved(error)
        each(AuditSteps.end, audits)
