"""The daemon as its API sees it: what the last audits showed, what is asked of the next ones,
whether all is well.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import asdict, replace
from threading import Lock
from typing import Any

from agent.api.errors import Stopping, Unready, Unwell
from agent.api.record_views import RecordViews
from agent.api.service import Audit, Document, LastAudit
from agent.audit.node_audit import AuditContext
from agent.errors import AgentError, DriverTimeout
from agent.model.report import CONFLICTS, WELL, NodeReport, Problem, Report
from agent.monitors.monitor import Measurement
from agent.placement.client import PlacementClient
from agent.render.json_report import node_document, tree_document
from agent.render.own_tree import StoredTree, own_providers
from agent.service.audit_queue import AuditRequests
from agent.tracker.errors import NodeNotReady, UnknownNode
from agent.tracker.tracker import Tracker

# In seconds: work of which nothing was heard for so long does not go on, or so systemd's watchdog
# will find too.
STALLED = 300.0
# Seconds in which a configuration has to be read again, its driver started anew.
RELOAD_DEADLINE = 240.0


class DaemonService:
    """Shared by the daemon's loop, which tells it everything, and the threads of the API. ``wake``
    makes the loop look.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.audits = AuditRequests(wake)
        self._wake, self._lock = wake, Lock()
        self._status, self._stopping = "starting", False
        self._work, self._heard_of = "", 0.0
        self._seen: Mapping[str, LastAudit] = {}
        # None until all nodes were audited once.
        self._errors: Sequence[Problem] | None = None
        # Asked for, and under way.
        self._reload: Future[None] | None = None
        self._reloading: Future[None] | None = None
        self._records: RecordViews | None = None
        self._context: AuditContext | None = None
        self._readings: Sequence[Measurement] = ()

    # --- what the daemon tells --------------------------------------------------------------------

    def says(self, status: str) -> None:
        """How things are, in one line."""
        self._status = status

    def opened(self, records: RecordViews) -> None:
        """The store is open, and stays so for as long as anybody may ask."""
        self._records = records

    def serves(self, context: AuditContext, *, audited: bool) -> None:
        """What requests are carried out with. Whatever did that before goes on until the nodes were
        ``audited`` by this one.
        """
        if audited or self._context is None:
            self._context = context
            self._records = self._records.of(context.agent) if self._records is not None else None

    def measured(self, readings: Sequence[Measurement]) -> None:
        """What the monitors say of the host."""
        self._readings = readings

    def begins(self, work: str) -> None:
        """The loop waits for this now."""
        self._work, self._heard_of = work, time.monotonic()

    def goes_on(self) -> None:
        """The work gets somewhere."""
        self._heard_of = time.monotonic()

    def ends(self) -> None:
        """The work is done."""
        self._work = ""

    def audited(self, report: Report, *, whole: bool) -> None:
        """What an audit has shown; a ``whole`` one has shown every node there is, a dry run only
        what could be.
        """
        if report.dry_run:
            return
        now = time.time()
        with self._lock:
            seen = {
                node.uuid: _seen(node, report.endpoint, now, self._seen.get(node.uuid))
                for node in report.nodes
            }
            if whole:
                self._errors = report.errors
                # Those of which nothing is known now are as they were, if it is the agent that
                # fails.
                self._seen = {**self._seen, **seen} if report.errors else seen
            else:
                self._seen = {**self._seen, **seen}

    def stops(self) -> None:
        """Nothing that is asked will be done any more."""
        self._stopping = True
        self.audits.close()
        with self._lock:
            waiting, self._reload, self._reloading = (self._reload, self._reloading), None, None
        for one in waiting:
            if one is not None:
                one.set_exception(Stopping())

    @property
    def wanted(self) -> bool:
        """Whether the loop is asked for anything."""
        return self.audits.waiting or self.reload_wanted

    @property
    def reload_wanted(self) -> bool:
        """Whether the configuration is to be read again."""
        return self._reload is not None

    def reloads(self) -> None:
        """The configuration is read again now; whoever asks from here on gets a reading of their
        own.
        """
        with self._lock:
            self._reloading, self._reload = self._reload, None

    def reloaded(self, error: AgentError | None) -> None:
        """The configuration was read again, and cannot be used if there is an error."""
        with self._lock:
            asked, self._reloading = self._reloading, None
        if asked is not None and error is None:
            asked.set_result(None)
        elif asked is not None:
            asked.set_exception(error)

    # --- what the API asks: see agent.api.service -------------------------------------------------

    def status(self) -> str:
        """How things are, in one line."""
        return self._status

    def check_health(self) -> None:
        """:raises Unwell, Stopping: the process does not work as it should."""
        if self._stopping:
            raise Stopping
        silent = time.monotonic() - self._heard_of
        if self._work and silent > STALLED:
            raise Unwell(
                f"{self._work} gets nowhere for {silent:.0f} s",
                "look at the log; if nothing helps, restart the agent",
            )

    def check_readiness(self) -> None:
        """:raises Unready, Stopping: not every node was audited and is well."""
        if self._stopping:
            raise Stopping
        errors, seen = self._errors, self._seen
        if errors is None:
            raise Unready(
                [
                    self._status
                    if self._status != "starting"
                    else "starting: no audit is through yet"
                ]
            )
        reasons = [error.message for error in errors]
        reasons += [
            f"node {one.report.name}: {one.report.state}{_because(one.report)}"
            for one in seen.values()
            if one.report.state not in WELL
        ]
        if reasons:
            raise Unready(reasons)

    def seen(self) -> Sequence[LastAudit]:
        """Every node, in the order of their uuids."""
        return [seen for _, seen in sorted(self._seen.items())]

    def nodes(self) -> Sequence[Document]:
        """A summary of each node, in the order of their uuids."""
        return [_summary(seen) for seen in self.seen()]

    def node(self, uuid: str) -> Document:
        """:raises UnknownNode: there is none of that uuid."""
        seen = self._find(uuid)
        return {
            **node_document(seen.report),
            "audited_at": seen.at,
            "last_good_audit_at": seen.good_at,
        }

    def tree(self, uuid: str) -> Document:
        """:raises UnknownNode: there is none of that uuid."""
        seen = self._find(uuid)
        report = seen.report
        stored = StoredTree(
            report.name, report.uuid, seen.endpoint or "", report.tree, report.owned, report.used
        )
        (found,) = tree_document([stored])["nodes"]
        return {**found, "endpoint": seen.endpoint}

    def records(self) -> RecordViews:
        """:raises NodeNotReady, Stopping: they cannot be read yet, or no more."""
        if self._stopping:
            raise Stopping
        if self._records is None:
            raise _not_ready()
        return self._records

    def tracker(self) -> Tracker:
        """:raises NodeNotReady, Stopping: nothing can be done yet, or no more."""
        tracking = self._in_service().records
        if tracking is None:
            raise _not_ready()
        return tracking.tracker

    def placement(self) -> PlacementClient:
        """:raises NodeNotReady, Stopping: as :meth:`tracker`."""
        return self._in_service().server.client()

    def readings(self) -> Sequence[Measurement]:
        """What the monitors said when they were last asked."""
        return self._readings

    def request_audit(self, nodes: Sequence[str], *, dry_run: bool) -> str:
        """:raises TooManyAudits, Stopping: it will not be made."""
        return self.audits.ask(nodes, dry_run=dry_run)

    def audit(self, audit_id: str, wait: float) -> Audit:
        """:raises UnknownAudit, Stopping: there is none."""
        return self.audits.look(audit_id, wait)

    def reload(self) -> None:
        """:raises AgentError: the configuration cannot be used, and the old one stays."""
        with self._lock:
            if self._stopping:
                raise Stopping
            asked = self._reload = self._reload or Future()
        self._wake()
        try:
            asked.result(RELOAD_DEADLINE)
        except FutureTimeout as error:
            raise DriverTimeout(
                f"the configuration was not reloaded within {RELOAD_DEADLINE:.0f} s",
                "look at the log; it may still come",
            ) from error

    def _in_service(self) -> AuditContext:
        if self._stopping:
            raise Stopping
        if self._context is None:
            raise _not_ready()
        return self._context

    def _find(self, uuid: str) -> LastAudit:
        seen = self._seen.get(uuid)
        if seen is None:
            raise UnknownNode(
                f"no node {uuid} was audited here", "see /v1/nodes for those that were"
            )
        return seen


def _seen(
    node: NodeReport, endpoint: str | None, now: float, before: LastAudit | None
) -> LastAudit:
    """The node as this audit left it, and as the one ``before`` did where this one
    could not look.
    """
    well = node.state in WELL
    if before is None:
        return LastAudit(node, endpoint, now, now if well else None)
    if not node.judged:
        # That nobody can look, as in an outage, mends nothing. Conflicts show before anything else
        # does.
        kept = [
            one
            for one in before.report.drift
            if one not in node.drift and not (node.drift and one.kind in CONFLICTS)
        ]
        node = replace(node, drift=(*node.drift, *kept))
    # One that was not audited was either found to be as it was, or not looked at.
    return LastAudit(
        node, endpoint, now if node.seconds or well else before.at, now if well else before.good_at
    )


def _not_ready() -> NodeNotReady:
    return NodeNotReady(
        "the agent has not started its driver yet",
        "try again in a moment; agent status says what it waits for",
    )


def _because(report: NodeReport) -> str:
    return f": {report.errors[0].message}" if report.errors else ""


def _summary(seen: LastAudit) -> dict[str, Any]:
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
        "drift": len(report.drift),
        "drift_kinds": dict(sorted(Counter(one.kind for one in report.drift).items())),
        "drift_warnings": sum(one.severity == "warning" for one in report.drift),
        "errors": [
            {"code": one.code, "message": one.message, "remedy": one.remedy}
            for one in report.errors
        ],
    }
