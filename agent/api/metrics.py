"""The agent's metrics for Prometheus, and the tracker as the API calls it: every operation is
timed, every refusal is counted.
"""

import time
from collections.abc import Callable
from typing import Literal, TypeVar, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    Summary,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.registry import Collector

from agent.api.service import Service
from agent.driver.worker import Outcome
from agent.errors import AgentError
from agent.model.report import METHODS, STEPS, WELL, NodeState, Report
from agent.tracker.tracker import Tracker
from agent.version import agent_version

PREFIX = "compute_node_agent"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
AUDIT_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
OPERATION_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5)
ANSWER_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30)

TrackerOperation = Literal[
    "claim",
    "abort",
    "claim-devices",
    "allocate-devices",
    "free-devices",
    "claim-move",
    "finish",
    "confirm",
    "revert",
    "abort-move",
    "progress",
    "drop",
    "update",
    "count-build",
    "remove-allocation",
    "import-guests",
    "forget-guest",
    "clean-device",
]


class Metrics:
    """All metrics, in a registry of their own."""

    def __init__(self) -> None:
        # The creation times of the series are of no use, and would double the number of lines.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry = CollectorRegistry()
        ProcessCollector(namespace=PREFIX, registry=registry)
        Info(f"{PREFIX}_build", "What runs", registry=registry).info({"version": agent_version()})
        self._audits = Counter(
            f"{PREFIX}_audits",
            "Audits of nodes, by how they left them",
            ["state"],
            registry=registry,
        )
        self._seconds = Histogram(
            f"{PREFIX}_audit_seconds",
            "How long an audit of a node took",
            buckets=AUDIT_SECONDS,
            registry=registry,
        )
        self._steps = Summary(
            f"{PREFIX}_audit_step_seconds",
            "How long the steps of an audit took",
            ["step"],
            registry=registry,
        )
        self._requests = Counter(
            f"{PREFIX}_placement_requests", "Requests to Placement", ["method"], registry=registry
        )
        self._replies = Counter(
            f"{PREFIX}_placement_replies",
            "Requests to Placement by status; none: no answer came",
            ["method", "status"],
            registry=registry,
        )
        self._latency = Histogram(
            f"{PREFIX}_placement_request_seconds",
            "How long requests to Placement took",
            ["method"],
            buckets=ANSWER_SECONDS,
            registry=registry,
        )
        self._calls = Histogram(
            f"{PREFIX}_driver_call_seconds",
            "Calls of the driver, and what became of them",
            ["call", "outcome"],
            buckets=AUDIT_SECONDS,
            registry=registry,
        )
        self._operations = Counter(
            f"{PREFIX}_operations",
            "Changes to Placement, and what became of them",
            ["op", "status"],
            registry=registry,
        )
        self._of_node = Counter(
            f"{PREFIX}_node_operations",
            "The same by node",
            ["node", "op", "status"],
            registry=registry,
        )
        self._last = Gauge(
            f"{PREFIX}_last_audit_timestamp_seconds",
            "When an audit of all nodes last ended, whatever came of it",
            registry=registry,
        )
        self._last_good = Gauge(
            f"{PREFIX}_last_good_audit_timestamp_seconds",
            "When an audit last left all nodes well; 0: never yet",
            registry=registry,
        )
        self._unlisted = Counter(
            f"{PREFIX}_pci_sync_failures",
            "Audits of nodes whose PCI devices could not be listed",
            registry=registry,
        )
        self._hanging = Gauge(
            f"{PREFIX}_hanging_driver_calls",
            "Driver calls that were given up and have not come back",
            registry=registry,
        )
        self._answers = Histogram(
            f"{PREFIX}_api_request_seconds",
            "Requests to the local API",
            ["method", "path", "status"],
            buckets=ANSWER_SECONDS,
            registry=registry,
        )
        self._work = Histogram(
            f"{PREFIX}_tracker_operation_seconds",
            "What was asked of the tracker",
            ["operation"],
            buckets=OPERATION_SECONDS,
            registry=registry,
        )
        self._refusals = Counter(
            f"{PREFIX}_tracker_refusals",
            "What the tracker refused, and why",
            ["operation", "code"],
            registry=registry,
        )
        for operation in get_args(TrackerOperation):
            self._work.labels(operation)
        for state in get_args(NodeState):
            self._audits.labels(state)
        for method in METHODS:
            self._requests.labels(method)
            self._latency.labels(method)

    def count_report(self, report: Report, hanging: int, *, whole: bool) -> None:
        """Count an audit, of all nodes if ``whole``. Of a dry run only the requests count, because
        the states that it saw are not those of the nodes.
        """
        for method in METHODS:
            self._requests.labels(method).inc(
                report.requests.get(method, 0)
                + sum(node.requests.get(method, 0) for node in report.nodes)
            )
        self._hanging.set(hanging)
        if report.dry_run:
            return
        for node in report.nodes:
            if not node.seconds:
                # The node was not audited, because nothing of it had changed.
                continue
            self._audits.labels(node.state).inc()
            self._seconds.observe(node.seconds.get("total", 0.0))
            self._unlisted.inc("pci" in node.incomplete)
            for step in STEPS[:-1]:
                self._steps.labels(step).observe(node.seconds.get(step, 0.0))
            for outcome in node.outcomes:
                self._operations.labels(outcome.operation.op, outcome.status).inc()
                self._of_node.labels(node.name, outcome.operation.op, outcome.status).inc()
        if whole:
            self._last.set(time.time())
            if not report.errors and all(node.state in WELL for node in report.nodes):
                self._last_good.set(time.time())

    def count_request(self, method: str, status: int | None, seconds: float) -> None:
        """Count a request to Placement. ``status``: of its answer, None if there was none."""
        self._replies.labels(method, "none" if status is None else str(status)).inc()
        self._latency.labels(method).observe(seconds)

    def count_call(self, call: str, outcome: Outcome, seconds: float) -> None:
        """Count a call of the driver."""
        self._calls.labels(call, outcome).observe(seconds)

    def count_answer(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request to the API. ``path`` is the template, so that there are few series."""
        self._answers.labels(method, path, str(status)).observe(seconds)

    def count_operation(self, operation: TrackerOperation, refusal: str, seconds: float) -> None:
        """Count an operation of the tracker. ``refusal``: the code of the error, empty if it
        succeeded.
        """
        self._work.labels(operation).observe(seconds)
        if refusal:
            self._refusals.labels(operation, refusal).inc()

    def add(self, collector: Collector) -> None:
        """Add a collector's metrics."""
        self._registry.register(collector)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)


Answer = TypeVar("Answer")


class TimedTracker:
    """Runs operations of the tracker, and counts them in the metrics. Threads may share it."""

    def __init__(self, service: Service, metrics: Metrics) -> None:
        self._service, self._metrics = service, metrics

    def run(self, operation: TrackerOperation, work: Callable[[Tracker], Answer]) -> Answer:
        """Call ``work`` with the tracker, and return its result.

        :raises AgentError: there is no tracker now, or it refuses.
        """
        begun, refusal = time.monotonic(), ""
        try:
            return work(self._service.tracker())
        except AgentError as error:
            refusal = error.code
            raise
        finally:
            self._metrics.count_operation(operation, refusal, time.monotonic() - begun)
