"""The passes of the daemon: over all nodes when they are due, over some nodes after a request or a
change.
"""

import gc
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from glob import escape

from agent.api.audit_requests import RequestedAudit
from agent.api.local_api import LocalApi
from agent.api.service import Service
from agent.audit.context import AuditOptions
from agent.audit.fleet import Fleet
from agent.conf.default import host_name
from agent.errors import AgentBug, AgentError, DriverError, PlacementUnreachable
from agent.model.report import NodeReport, Report, exit_code, failed_report
from agent.render.document import dumps, problems_of
from agent.render.json_report import report_document
from agent.service.audit_queue import DirtyNodes, Schedule
from agent.service.background import Background, Status, agent_state, summary
from agent.service.log_writer import ProblemLog, check_start, with_store_state
from agent.service.runtime import Runtime
from agent.store.store import Store

LOG = logging.getLogger(__name__)

# Seconds without work after a bug, so that one that comes at once each time does not keep the
# processor busy.
BUG_PAUSE = 0.2


class Passes:
    """Runs the passes that are due, and reports their results."""

    def __init__(
        self,
        schedule: Schedule,
        dirty_nodes: DirtyNodes,
        background: Background,
        service: Service,
        api: LocalApi,
        status: Status,
    ) -> None:
        self._schedule, self._dirty_nodes = schedule, dirty_nodes
        self._background, self._stopping = background, background.stopping
        self._service, self._api, self._status = service, api, status
        self._problem_log = ProblemLog()
        # Whether a pass over all nodes has ended, and whether the next one trusts no saved mirror.
        self._begun = self._reread = False
        # Whether a reload has replaced parts that nothing was audited with since.
        self._reloaded = False
        # When the last pass over all nodes that asked Placement and succeeded had begun, in seconds
        # of the monotonic clock; None before there was one.
        self._asked_at: float | None = None
        # As last reported by a pass over all nodes that had any.
        self._nodes: Sequence[NodeReport] = ()

    @property
    def due(self) -> float:
        """When the next pass is due, in seconds of the monotonic clock."""
        return min(self._schedule.due, self._dirty_nodes.due)

    def reread(self) -> None:
        """Read everything from Placement in the next pass over all nodes that succeeds, because the
        configuration is read again.
        """
        self._reread = self._reloaded = True

    def restart(self, interval: int | None) -> None:
        """Make a pass over all nodes due now. ``interval``: seconds between passes from now on, as
        in [DEFAULT] update_resources_interval; None: as before.
        """
        if interval is not None:
            self._schedule = Schedule(interval)
        self._schedule.at_once()

    def run_due(self, runtime: Runtime, store: Store) -> None:
        """Audit what is due, and what was requested."""
        requests = self._service.audits.take(whole=True)
        if requests or not self._begun or self._schedule.due <= time.monotonic():
            with self.survive_bugs(runtime, requests):
                self._audit_all(runtime, store, requests)
        for request in self._service.audits.take(whole=False):
            if not self._stopping.is_set():
                with self.survive_bugs(runtime, [request]):
                    self._audit_requested(runtime, store, request)
        if self._dirty_nodes.due <= time.monotonic() and not self._stopping.is_set():
            with self.survive_bugs():
                self._audit_dirty(runtime, store)

    @contextmanager
    def survive_bugs(
        self, runtime: Runtime | None = None, requests: Sequence[RequestedAudit] = ()
    ) -> Iterator[None]:
        """Keep a bug in the block from ending the daemon: report it, also to the requests, and try
        again soon.
        """
        try:
            yield
        except AgentError:
            raise
        except Exception as error:
            LOG.exception("a bug in the agent")
            bug = AgentBug.of(error)
        else:
            return
        self._schedule.plan_after_failure()
        self._stopping.wait(BUG_PAUSE)
        self._report_bug(bug, runtime, requests)

    def _report_bug(
        self, bug: AgentBug, runtime: Runtime | None, requests: Sequence[RequestedAudit]
    ) -> None:
        """Report a bug to systemd and to the requests, unless that fails too."""
        try:
            if runtime is not None:
                failure = _failure(runtime, bug)
                self._show(failure, runtime, whole=True)
                self._answer(failure, requests)
            self._status.report(f"degraded: {bug.message}")
        except Exception:
            LOG.exception("the bug cannot be reported")

    # --- all nodes --------------------------------------------------------------------------------

    def _audit_all(
        self, runtime: Runtime, store: Store, requests: Sequence[RequestedAudit]
    ) -> None:
        """Audit every node, and report the result."""
        # A change from here on may be too late for this pass.
        self._dirty_nodes.take()
        longest = 2 * self._schedule.interval if self._schedule.repeats else math.inf
        self._service.oldest = longest + runtime.conf.compute.facts_deadline
        begun, on_mirror = time.monotonic(), self._is_on_mirror(runtime, requested=bool(requests))
        try:
            report = self._background.run(
                "an audit",
                lambda: self._run_fleet(runtime, store, asked=bool(requests), on_mirror=on_mirror),
            )
        except AgentError as error:
            # A driver may need a service that starts later than the agent, and a bug may not come
            # again; any other error before the first audit is permanent.
            if not self._begun and not isinstance(error, DriverError | AgentBug):
                raise
            report = _failure(runtime, error)
        if self._stopping.is_set():
            return
        if not self._begun:
            check_start(report)
        self._begun, self._nodes = True, report.nodes or self._nodes
        asked_about_all = any(report.requests.values()) or all(
            any(node.requests.values()) for node in report.nodes
        )
        if self._schedule_next(report) and asked_about_all:
            self._asked_at = begun
        self._problem_log.log_changes(report.errors, report.nodes)
        self._show(report, runtime, whole=True)
        text = summary(report.errors, report.nodes, runtime.hanging)
        if self._asked_at is None and agent_state(text) == "ready":
            seconds = max(self._schedule.due - time.monotonic(), 0)
            text += f"; Placement is asked in {seconds:.0f} s"
        self._status.report(text)
        self._answer(report, requests)

    def _is_on_mirror(self, runtime: Runtime, *, requested: bool) -> bool:
        """Return whether Placement need not be asked in the pass that begins now, as long as the
        mirror suffices.
        """
        if requested or self._reread:
            return False
        if not self._begun:
            # Many agents may start together. Each asks in its second pass, at its own offset within
            # the interval.
            return self._schedule.repeats
        # The pass that is nearest to the time asks.
        pause = runtime.conf.placement.interval - self._schedule.interval / 2
        return self._asked_at is not None and time.monotonic() - self._asked_at < pause

    def _run_fleet(self, runtime: Runtime, store: Store, *, asked: bool, on_mirror: bool) -> Report:
        """Poll the monitors and audit every node."""
        self._service.readings = runtime.monitors.poll()
        fleet = runtime.start(store)
        self._service.set_context(fleet.context, audited=False)
        report = fleet.run(
            replace(_audit_options(fleet, reread=self._reread, asked=asked), on_mirror=on_mirror),
            progress=self._progress,
        )
        self._service.set_context(fleet.context, audited=True)
        if self._reloaded:
            # What was replaced answered until now. Its parts refer to each other, so that their
            # memory would stay until Python looks for old garbage, which takes hours.
            self._reloaded = False
            gc.collect()
        return with_store_state(report, store, self._nodes)

    def _schedule_next(self, report: Report) -> bool:
        """Schedule the next pass; return whether this one succeeded."""
        nodes = report.nodes
        unreachable = any(
            problem.code == PlacementUnreachable.code for node in nodes for problem in node.errors
        )
        all_failed = nodes and all(node.state == "failed" for node in nodes)
        if report.errors or unreachable or all_failed:
            self._schedule.plan_after_failure()
            return False
        self._schedule.plan_after_success()
        self._reread = False
        return True

    # --- some nodes -------------------------------------------------------------------------------

    def _audit_requested(self, runtime: Runtime, store: Store, request: RequestedAudit) -> None:
        """Run a requested audit of some nodes, or a requested dry run."""

        def audit() -> Report:
            fleet = runtime.start(store)
            names = [escape(name) for name in request.nodes]
            options = _audit_options(fleet, asked=True)
            if request.dry_run:
                options = replace(options, dry_run=True, start=False)
                return fleet.dry_run_fleet().run(options, names, self._progress)
            return with_store_state(fleet.run(options, names, self._progress), store, ())

        try:
            report = self._background.run(f"audit {request.id}", audit)
        except AgentError as error:
            report = replace(_failure(runtime, error), dry_run=request.dry_run)
        if not self._stopping.is_set():
            self._report_some(report, runtime)
            self._answer(report, [request])

    def _audit_dirty(self, runtime: Runtime, store: Store) -> None:
        """Audit the nodes that have changed."""
        nodes = sorted(self._dirty_nodes.take())

        def audit() -> Report:
            fleet = runtime.start(store)
            report = fleet.run(_audit_options(fleet), nodes, self._progress, refresh=False)
            return with_store_state(report, store, ())

        try:
            report = self._background.run("an audit of changed nodes", audit)
        except AgentError as error:
            report = _failure(runtime, error)
        if not self._stopping.is_set():
            self._report_some(report, runtime)

    def _report_some(self, report: Report, runtime: Runtime) -> None:
        """Report an audit of some nodes to the API, and a bug in it to systemd; the next pass over
        all nodes shows whether the bug lasts.
        """
        self._show(report, runtime, whole=False)
        if any(error.code == AgentBug.code for error in report.errors):
            self._schedule.plan_after_failure()
            self._status.report(summary(report.errors, (), runtime.hanging))

    # --- reports ----------------------------------------------------------------------------------

    def _show(self, report: Report, runtime: Runtime, *, whole: bool) -> None:
        """Show the report of an audit, of all nodes if ``whole``, to clients of the API."""
        self._service.take_report(report, whole=whole)
        self._api.metrics.count_report(report, runtime.hanging, whole=whole)

    def _answer(self, report: Report, requests: Sequence[RequestedAudit]) -> None:
        """Hand a report to the requests: last, because a client that has it may ask for the status
        at once.
        """
        if requests:
            document = report_document(
                replace(report, exit_code=exit_code(report.nodes, report.errors))
            )
            self._service.audits.answer(requests, dumps(document).encode())

    def _progress(self, _count: int) -> Callable[[str], None]:
        def note_node(_name: str) -> None:
            self._status.notifier.watchdog()
            self._service.note_progress()

        return note_node


def _audit_options(fleet: Fleet, *, reread: bool = False, asked: bool = False) -> AuditOptions:
    """Return how the daemon audits. One that only observes plans as if the trees were its own, and
    sends nothing.
    """
    observes = fleet.context.observes
    return AuditOptions(
        dry_run=observes, adopt=observes, start=not observes, reread=reread, asked=asked
    )


def _failure(runtime: Runtime, error: AgentError) -> Report:
    return failed_report(host_name(runtime.conf), problems_of(error))
