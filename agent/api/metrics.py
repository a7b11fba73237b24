"""The agent's metrics for Prometheus, and the tracker as the API calls it: every operation is
timed, every refusal is counted. Those of nodes, claims and monitors are collected when asked for.
"""

import collections
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeVar, get_args

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
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agent.api.report_page import LastAudit
from agent.api.service import Service
from agent.driver.worker import Outcome
from agent.errors import AgentError
from agent.model.finding import WELL, AuditState, DriftKind
from agent.model.node_records import Purpose
from agent.model.report import METHODS, STEPS, Report
from agent.monitors import Measurement
from agent.tracker.node_state import NodeState
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

METRICS: Sequence[tuple[Callable[..., Any], str, Sequence[str], str]] = (
    (Counter, "audits", ["state"], "Audits of nodes, by resulting state"),
    (
        partial(Histogram, buckets=AUDIT_SECONDS),
        "audit_seconds",
        [],
        "Duration of an audit of a node",
    ),
    (Summary, "audit_step_seconds", ["step"], "Duration of each step of an audit"),
    (Counter, "placement_requests", ["method"], "Requests to Placement by audits"),
    (
        Counter,
        "placement_replies",
        ["method", "status"],
        "All requests to Placement by the status of the answer; none: there was no answer",
    ),
    (
        partial(Histogram, buckets=ANSWER_SECONDS),
        "placement_request_seconds",
        ["method"],
        "Duration of requests to Placement",
    ),
    (
        partial(Histogram, buckets=AUDIT_SECONDS),
        "driver_call_seconds",
        ["call", "outcome"],
        "Duration of driver calls: done, failed, or abandoned at their deadline",
    ),
    (Counter, "operations", ["op", "status"], "Changes to Placement, by outcome"),
    (Counter, "node_operations", ["node", "op", "status"], "Changes to Placement of each node"),
    (
        Gauge,
        "last_audit_timestamp_seconds",
        [],
        "End of the last audit of all nodes, whatever its result",
    ),
    (
        Gauge,
        "last_good_audit_timestamp_seconds",
        [],
        "End of the last audit that left all nodes well; 0: none yet",
    ),
    (
        Counter,
        "pci_sync_failures",
        [],
        "Audits of nodes whose PCI devices could not be listed",
    ),
    (
        Gauge,
        "hanging_driver_calls",
        [],
        "Abandoned driver calls that have not returned",
    ),
    (
        partial(Histogram, buckets=ANSWER_SECONDS),
        "api_request_seconds",
        ["method", "path", "status"],
        "Duration of requests to the local API",
    ),
    (
        partial(Histogram, buckets=OPERATION_SECONDS),
        "tracker_operation_seconds",
        ["operation"],
        "Duration of operations of the tracker",
    ),
    (
        Counter,
        "tracker_refusals",
        ["operation", "code"],
        "Operations that the tracker refused",
    ),
)
"""What is counted as it happens: the kind of each metric, its name, labels and meaning."""


class Metrics:
    """All metrics, in a registry of their own."""

    def __init__(self) -> None:
        # The creation times of the series are of no use, and would double the number of lines.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry = CollectorRegistry()
        ProcessCollector(namespace=PREFIX, registry=registry)
        Info(f"{PREFIX}_build", "The running release", registry=registry).info(
            {"version": agent_version()}
        )
        self._of: Mapping[str, Any] = {
            name: kind(f"{PREFIX}_{name}", meaning, labels, registry=registry)
            for kind, name, labels, meaning in METRICS
        }
        self._show_zeros()

    def _show_zeros(self) -> None:
        """Make the series whose labels are known exist before anything is counted."""
        for operation in get_args(TrackerOperation):
            self._of["tracker_operation_seconds"].labels(operation)
        for state in get_args(AuditState):
            self._of["audits"].labels(state)
        for method in METHODS:
            self._of["placement_requests"].labels(method)
            self._of["placement_request_seconds"].labels(method)

    def count_report(self, report: Report, hanging: int, *, whole: bool) -> None:
        """Count an audit, of all nodes if ``whole``. Of a dry run only the requests count, because
        the states that it saw are not those of the nodes, unless the agent only observes.
        """
        for method in METHODS:
            self._of["placement_requests"].labels(method).inc(
                report.requests.get(method, 0)
                + sum(node.requests.get(method, 0) for node in report.nodes)
            )
        self._of["hanging_driver_calls"].set(hanging)
        if report.dry_run and not report.observes:
            return
        for node in report.nodes:
            if not node.seconds:
                # The node was not audited, because nothing of it had changed.
                continue
            self._of["audits"].labels(node.state).inc()
            self._of["audit_seconds"].observe(node.seconds.get("total", 0.0))
            self._of["pci_sync_failures"].inc("pci" in node.incomplete)
            for step in STEPS[:-1]:
                self._of["audit_step_seconds"].labels(step).observe(node.seconds.get(step, 0.0))
            for outcome in node.outcomes if not report.dry_run else ():
                self._of["operations"].labels(outcome.operation.op, outcome.status).inc()
                self._of["node_operations"].labels(
                    node.name, outcome.operation.op, outcome.status
                ).inc()
        if whole:
            self._of["last_audit_timestamp_seconds"].set(time.time())
            if not report.errors and all(node.state in WELL for node in report.nodes):
                self._of["last_good_audit_timestamp_seconds"].set(time.time())

    def count_request(self, method: str, status: int | None, seconds: float) -> None:
        """Count a request to Placement. ``status``: of its answer, None if there was none."""
        self._of["placement_replies"].labels(
            method, "none" if status is None else str(status)
        ).inc()
        self._of["placement_request_seconds"].labels(method).observe(seconds)

    def count_call(self, call: str, outcome: Outcome, seconds: float) -> None:
        """Count a call of the driver."""
        self._of["driver_call_seconds"].labels(call, outcome).observe(seconds)

    def count_answer(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request to the API. ``path`` is the template, so that there are few series."""
        self._of["api_request_seconds"].labels(method, path, str(status)).observe(seconds)

    def count_operation(self, operation: TrackerOperation, refusal: str, seconds: float) -> None:
        """Count an operation of the tracker. ``refusal``: the code of the error, empty if it
        succeeded.
        """
        self._of["tracker_operation_seconds"].labels(operation).observe(seconds)
        if refusal:
            self._of["tracker_refusals"].labels(operation, refusal).inc()

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

        :raises AgentError: there is no tracker now, or it refuses, or the agent only observes.
        """
        begun, refusal = time.monotonic(), ""
        try:
            self._service.check_manages()
            return work(self._service.tracker())
        except AgentError as error:
            refusal = error.code
            raise
        finally:
            self._metrics.count_operation(operation, refusal, time.monotonic() - begun)


RESOURCES = ("vcpus", "memory_mb", "disk_mb")


class NodeFigures(Collector):
    """A collector that reads the memory of the agent and not the store, so that frequent scrapes
    cost nothing.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    def describe(self) -> list[Metric]:
        """Return nothing, because prometheus_client would otherwise collect once at the
        registration.
        """
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics as they are now."""
        audits, states = self._service.last_audits(), self._states()
        yield from _audit_metrics(audits)
        yield from _drift_metrics(audits)
        yield from _usage_metrics(states)
        yield _claim_metrics(states)
        builds = (([state.node.name], state.node.failed_builds) for state in states)
        yield _family("node_failed_builds", "Failed builds in a row", ["node"], builds)
        yield _family(
            "node_unpublished",
            "1: the node has changes that are not in Placement yet",
            ["node"],
            (([state.node.name], state.node.dirty) for state in states),
        )
        yield from _monitor_metrics(self._service.readings)

    def _states(self) -> Sequence[NodeState]:
        try:
            return self._service.tracker().states_in_memory()
        except AgentError:
            # Before the first audit and while the agent stops, there are none.
            return ()


def _family(
    name: str, what: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], float]]
) -> Metric:
    """Return a gauge with a value for each row of labels."""
    family = GaugeMetricFamily(f"{PREFIX}_{name}", what, labels=labels)
    for row, value in rows:
        family.add_metric(row, value)
    return family


def _monitor_metrics(readings: Sequence[Measurement]) -> Iterator[Metric]:
    yield _family(
        "monitor_up",
        "1: the monitor gave its figures",
        ["monitor"],
        (([reading.monitor], reading.status == "ok") for reading in readings),
    )
    yield _family(
        "host",
        "Figures that the monitors measured",
        ["monitor", "metric", "unit"],
        (
            ([reading.monitor, metric.name, metric.unit], metric.value)
            for reading in readings
            for metric in reading.metrics
        ),
    )


def _audit_metrics(audits: Sequence[LastAudit]) -> Iterator[Metric]:
    """Yield the states of the nodes; of each node only its own state, because there may be
    thousands.
    """
    counts = collections.Counter(audit.report.state for audit in audits)
    yield _family(
        "nodes",
        "Nodes, by the state of their last audit",
        ["state"],
        (([state], counts[state]) for state in get_args(AuditState)),
    )
    yield _family(
        "node_state",
        "1: the last audit left the node in this state",
        ["node", "state"],
        (([audit.report.name, audit.report.state], 1) for audit in audits),
    )
    yield _family(
        "node_last_audit_timestamp_seconds",
        "End of the last audit of the node",
        ["node"],
        (([audit.report.name], audit.at) for audit in audits),
    )
    yield _family(
        "node_last_good_audit_timestamp_seconds",
        "End of the last audit that left the node well",
        ["node"],
        (([audit.report.name], audit.good_at) for audit in audits if audit.good_at is not None),
    )


def _drift_metrics(audits: Sequence[LastAudit]) -> Iterator[Metric]:
    """Yield the drift. What the last audit could see stays while later audits fail, so that an
    outage does not end an alert.
    """
    counts = collections.Counter(drift.kind for audit in audits for drift in audit.report.drift)
    yield _family(
        "drift",
        "Drift: differences that the agent does not correct by itself. They stay until an audit "
        "finds them corrected",
        ["kind"],
        (([kind], counts[kind]) for kind in get_args(DriftKind)),
    )
    by_node = collections.Counter(
        (audit.report.name, drift.kind, drift.severity)
        for audit in audits
        for drift in audit.report.drift
    )
    yield _family(
        "node_drift",
        "Drift of each node that has any",
        ["node", "kind", "severity"],
        by_node.items(),
    )


def _usage_metrics(states: Sequence[NodeState]) -> Iterator[Metric]:
    labels = ["node", "resource"]
    yield _family(
        "node_used",
        "Used and reserved amounts of the node: vcpus, memory_mb, disk_mb",
        labels,
        (
            ([state.node.name, resource], getattr(state.used, resource))
            for state in states
            for resource in RESOURCES
        ),
    )
    yield _family(
        "node_total",
        "Amounts that the node has: vcpus, memory_mb, disk_mb",
        labels,
        (
            ([state.node.name, resource], amount)
            for state in states
            for resource in RESOURCES
            if (amount := getattr(state.node, resource)) is not None
        ),
    )


def _claim_metrics(states: Sequence[NodeState]) -> Metric:
    counts = {
        state.node.name: collections.Counter(claim.purpose for claim in state.claims.values())
        for state in states
    }
    return _family(
        "claims_open",
        "Claims that are counted as usage",
        ["node", "purpose"],
        (
            ([node, purpose], of_node[purpose])
            for node, of_node in counts.items()
            for purpose in get_args(Purpose)
        ),
    )
