"""The daemon as its API sees it: the results of the last audits, requests for audits and reloads,
and the health of the process.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import asdict, replace
from threading import Lock
from typing import Any

from agent.api.audit_requests import AuditRequests
from agent.api.node_documents import JsonObject
from agent.api.problem import Stopping, Unready, Unwell
from agent.api.record_views import RecordViews
from agent.api.report_page import LastAudit, audit_document, make_report_page
from agent.audit.context import AuditContext
from agent.errors import AgentError, DriverTimeout, ObservesOnly
from agent.model.finding import WELL, Problem
from agent.model.report import NodeReport, Report, drift_after
from agent.monitors import Measurement
from agent.placement.client import PlacementClient
from agent.render.json_report import StoredTree, found_summary, own_providers, tree_document
from agent.tracker.errors import NodeNotReady, UnknownNode
from agent.tracker.tracker import Tracker

# Seconds without a sign of progress after which work counts as stalled; systemd's watchdog then
# finds the same.
STALLED = 300.0
# Seconds in which a configuration has to be reread and its driver started.
RELOAD_DEADLINE = 240.0


class Service:
    """State shared by the daemon's loop, which writes it, and the API's threads, which read it.

    ``wake`` wakes the loop.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.audits = AuditRequests(wake)
        self._wake, self._lock = wake, Lock()
        self.status = "starting"
        """The status line; its first word is the agent's state."""
        self._stopping = False
        # ``_progress_at``: when ``_work`` last showed progress, in seconds of the monotonic clock.
        self._work, self._progress_at = "", 0.0
        self._last_audits: Mapping[str, LastAudit] = {}
        # When the last pass of each node ended, in seconds of the monotonic clock, by uuid.
        self._ended_at: dict[str, float] = {}
        self.oldest = math.inf
        """How many seconds ago the last pass of a node may have ended while the agent is ready."""
        # None until all nodes were audited once.
        self._errors: Sequence[Problem] | None = None
        # The reload that is requested, and the one under way.
        self._reload: Future[None] | None = None
        self._reloading: Future[None] | None = None
        self._records: RecordViews | None = None
        self._context: AuditContext | None = None
        self.readings: Sequence[Measurement] = ()
        """What the monitors last measured."""

    # --- called by the daemon ---------------------------------------------------------------------

    def set_records(self, records: RecordViews) -> None:
        """Set the records; the store stays open as long as requests may come."""
        self._records = records

    def set_context(self, context: AuditContext, *, audited: bool) -> None:
        """Set the context that requests are carried out with. An earlier context stays in use until
        the nodes were ``audited`` with this one.
        """
        if audited or self._context is None:
            self._context = context
            self._records = self._records.of(context.agent) if self._records is not None else None

    def begin_work(self, work: str) -> None:
        """Note that the loop waits for ``work`` now."""
        self._work, self._progress_at = work, time.monotonic()

    def note_progress(self) -> None:
        """Note progress of the work."""
        self._progress_at = time.monotonic()

    def end_work(self) -> None:
        """Note the end of the work."""
        self._work = ""

    def take_report(self, report: Report, *, whole: bool) -> None:
        """Take over the result of an audit. A ``whole`` one covers every node there is; a dry run
        is ignored, unless the agent only observes.
        """
        if report.dry_run and not report.observes:
            return
        now = time.time()
        ended = dict.fromkeys((node.uuid for node in report.nodes), time.monotonic())
        with self._lock:
            self._ended_at = ended if whole and not report.errors else self._ended_at | ended
            seen = {
                node.uuid: _last_audit(node, report.endpoint, now, self._last_audits.get(node.uuid))
                for node in report.nodes
            }
            if whole:
                self._errors = report.errors
                # If the agent itself fails, the nodes without a report stay as they were.
                self._last_audits = {**self._last_audits, **seen} if report.errors else seen
            else:
                self._last_audits = {**self._last_audits, **seen}

    def stop(self) -> None:
        """Refuse all further requests, and end the waiting ones with :class:`Stopping`."""
        self._stopping = True
        self.audits.close()
        with self._lock:
            waiting, self._reload, self._reloading = (self._reload, self._reloading), None, None
        for promise in waiting:
            if promise is not None:
                promise.set_exception(Stopping())

    @property
    def has_requests(self) -> bool:
        """Whether a request waits for the loop."""
        return self.audits.waiting or self.reload_requested

    @property
    def reload_requested(self) -> bool:
        """Whether a reload is requested."""
        return self._reload is not None

    def begin_reload(self) -> None:
        """Note that a reload begins; later requests wait for the next one."""
        with self._lock:
            self._reloading, self._reload = self._reload, None

    def end_reload(self, error: AgentError | None) -> None:
        """Note the end of a reload; with an ``error``, the configuration cannot be used."""
        with self._lock:
            request, self._reloading = self._reloading, None
        if request is not None and error is None:
            request.set_result(None)
        elif request is not None:
            request.set_exception(error)

    # --- called by the API ----------------------------------------------------------------------

    def check_health(self) -> None:
        """Check that the process makes progress.

        :raises Unwell, Stopping: the process does not work as it should.
        """
        if self._stopping:
            raise Stopping
        silent = time.monotonic() - self._progress_at
        if self._work and silent > STALLED:
            raise Unwell(
                f"{self._work} makes no progress for {silent:.0f} s",
                "look at the log; if nothing helps, restart the agent",
            )

    def check_readiness(self) -> None:
        """Check that every node was audited lately and is well.

        :raises Unready, Stopping: not every node was audited lately and is well.
        """
        if self._stopping:
            raise Stopping
        errors, seen = self._errors, self._last_audits
        if errors is None:
            raise Unready(
                [self.status if self.status != "starting" else "starting: no audit is through yet"]
            )
        reasons = [error.message for error in errors]
        reasons += [
            ": ".join(
                [
                    f"node {audit.report.name}: {audit.report.state}",
                    *(error.message for error in audit.report.errors[:1]),
                ]
            )
            for audit in seen.values()
            if audit.report.state not in WELL
        ]
        now = time.monotonic()
        ages = {uuid: now - ended for uuid, ended in self._ended_at.items()}
        reasons += [
            f"node {seen[uuid].report.name}: its last pass ended {age:.0f} s ago; "
            f"{self._work or 'none'} is under way"
            for uuid, age in ages.items()
            if age > self.oldest and uuid in seen
        ]
        if reasons:
            raise Unready(reasons)

    def last_audits(self) -> Sequence[LastAudit]:
        """Return the last audit of every node, ordered by uuid."""
        return [seen for _, seen in sorted(self._last_audits.items())]

    def nodes(self) -> Sequence[JsonObject]:
        """Return a summary of each node, ordered by uuid."""
        return [_summary(seen) for seen in self.last_audits()]

    def node(self, uuid: str) -> JsonObject:
        """Return the last report of a node.

        :raises UnknownNode: there is no node of that uuid.
        """
        return audit_document(self._find(uuid))

    def tree(self, uuid: str) -> JsonObject:
        """Return the tree of a node as its last audit left it.

        :raises UnknownNode: there is no node of that uuid.
        """
        seen = self._find(uuid)
        report = seen.report
        stored = StoredTree(
            report.name,
            report.uuid,
            seen.endpoint or "",
            report.tree,
            report.owned,
            report.used,
            consumers=report.consumers,
            in_placement=report.in_placement,
        )
        (found,) = tree_document([stored])["nodes"]
        return {**found, "endpoint": seen.endpoint}

    def records(self) -> RecordViews:
        """Return the views of the records.

        :raises NodeNotReady, Stopping: they cannot be read yet, or not any more.
        """
        if self._stopping:
            raise Stopping
        if self._records is None:
            raise _not_ready()
        return self._records

    def tracker(self) -> Tracker:
        """Return the tracker.

        :raises NodeNotReady, Stopping: there is none yet, or not any more.
        """
        return self._in_service().tracking.tracker

    def check_manages(self) -> None:
        """Do nothing if the agent manages its nodes.

        :raises ObservesOnly: it only observes them.
        :raises NodeNotReady, Stopping: as :meth:`tracker`.
        """
        context = self._in_service()
        # After a reload the earlier context is in use for a while, with its transport closed.
        if context.observes or context.server.transport.read_only:
            raise ObservesOnly("claims, moves and records of guests are not kept here")

    def awaited(self) -> str:
        """Return for whose answer the work waits, and since when; empty if for nobody's."""
        with suppress(NodeNotReady, Stopping):
            return self._in_service().server.transport.awaited()
        return ""

    def placement(self) -> PlacementClient:
        """Return a new client of Placement.

        :raises NodeNotReady, Stopping: as :meth:`tracker`.
        """
        return self._in_service().server.client()

    def report_page(self, wanted: Sequence[str]) -> bytes:
        """Return the page of the nodes with these names, patterns or uuids; of all nodes if there
        are none.

        :raises UnknownNode: one of them matches no node.
        :raises Stopping: the agent ends.
        """
        try:
            tracker = self.tracker()
        except NodeNotReady:
            tracker = None
        return make_report_page(self.last_audits(), self._errors or (), tracker, wanted)

    def reload(self) -> None:
        """Request a reload, and wait for its end.

        :raises AgentError: the configuration cannot be used, and the old one stays.
        :raises DriverTimeout: the reload did not end within :data:`RELOAD_DEADLINE`.
        """
        with self._lock:
            if self._stopping:
                raise Stopping
            request = self._reload = self._reload or Future()
        self._wake()
        try:
            request.result(RELOAD_DEADLINE)
        except FutureTimeout as error:
            raise DriverTimeout(
                f"the configuration was not reloaded within {RELOAD_DEADLINE:.0f} s",
                "look at the log; the reload may still end",
            ) from error

    def _in_service(self) -> AuditContext:
        if self._stopping:
            raise Stopping
        if self._context is None:
            raise _not_ready()
        return self._context

    def _find(self, uuid: str) -> LastAudit:
        seen = self._last_audits.get(uuid)
        if seen is None:
            raise UnknownNode(
                f"no node {uuid} was audited here", "see /v1/nodes for those that were"
            )
        return seen


def _last_audit(
    node: NodeReport, endpoint: str | None, now: float, before: LastAudit | None
) -> LastAudit:
    """Return the node's last audit, completed from ``before`` where this audit could not look."""
    well = node.state in WELL
    if before is None:
        return LastAudit(node, endpoint, now, now if well else None)
    if not node.judged:
        node = replace(node, drift=drift_after(node, before.report.drift))
    # A node without an audit was either found unchanged, or could not be audited.
    return LastAudit(
        node, endpoint, now if node.seconds or well else before.at, now if well else before.good_at
    )


def _not_ready() -> NodeNotReady:
    return NodeNotReady(
        "the agent has not started its driver yet",
        "try again in a moment; see what it waits for: agent status",
    )


def _summary(seen: LastAudit) -> dict[str, Any]:
    """Return the summary of a node, as the API lists it."""
    report = seen.report
    return {
        "name": report.name,
        "uuid": report.uuid,
        "driver": report.driver,
        "state": report.state,
        "audited_at": seen.at,
        "last_good_audit_at": seen.good_at,
        "usage": asdict(report.usage),
        "providers": len(own_providers(report.tree, report.uuid)),
        **found_summary(report),
    }
