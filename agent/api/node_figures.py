"""Metrics of nodes, claims and monitors, collected when Prometheus asks for them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agent.api.metrics import PREFIX
from agent.api.service import LastAudit, Service
from agent.errors import AgentError
from agent.model.claim import Purpose
from agent.model.report import DriftKind
from agent.model.report import NodeState as AuditState
from agent.tracker.node_state import NodeState

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
        yield _of_nodes(
            "failed_builds",
            "Failed builds in a row",
            {state.node.name: state.node.failed_builds for state in states},
        )
        yield _of_nodes(
            "unpublished",
            "1: the node has changes that are not in Placement yet",
            {state.node.name: state.node.dirty for state in states},
        )
        yield from self._monitors()

    def _states(self) -> Sequence[NodeState]:
        try:
            return self._service.tracker().states_in_memory()
        except AgentError:
            # Before the first audit and while the agent stops, there are none.
            return ()

    def _monitors(self) -> Iterator[Metric]:
        works = GaugeMetricFamily(
            f"{PREFIX}_monitor_up", "1: the monitor gave its figures", labels=["monitor"]
        )
        host = GaugeMetricFamily(
            f"{PREFIX}_host",
            "Figures that the monitors measured",
            labels=["monitor", "metric", "unit"],
        )
        for reading in self._service.readings():
            works.add_metric([reading.monitor], reading.status == "ok")
            for metric in reading.metrics:
                host.add_metric([reading.monitor, metric.name, metric.unit], metric.value)
        yield from (works, host)


def _audit_metrics(audits: Sequence[LastAudit]) -> Iterator[Metric]:
    """Yield the states of the nodes; of each node only its own state, because there may be
    thousands.
    """
    counts = Counter(audit.report.state for audit in audits)
    nodes = GaugeMetricFamily(
        f"{PREFIX}_nodes", "Nodes, by the state of their last audit", labels=["state"]
    )
    for state in get_args(AuditState):
        nodes.add_metric([state], counts[state])
    yield nodes
    state_of = GaugeMetricFamily(
        f"{PREFIX}_node_state",
        "1: the last audit left the node in this state",
        labels=["node", "state"],
    )
    last = _of_nodes(
        "last_audit_timestamp_seconds",
        "End of the last audit of the node",
        {audit.report.name: audit.at for audit in audits},
    )
    good = {audit.report.name: audit.good_at for audit in audits if audit.good_at is not None}
    for audit in audits:
        state_of.add_metric([audit.report.name, audit.report.state], 1)
    yield from (
        state_of,
        last,
        _of_nodes(
            "last_good_audit_timestamp_seconds",
            "End of the last audit that left the node well",
            good,
        ),
    )


def _drift_metrics(audits: Sequence[LastAudit]) -> Iterator[Metric]:
    """Yield the drift. What the last audit could see stays while later audits fail, so that an
    outage does not end an alert.
    """
    whole = GaugeMetricFamily(
        f"{PREFIX}_drift",
        "Drift: differences that the agent does not correct by itself. They stay until an audit "
        "finds them corrected",
        labels=["kind"],
    )
    by_node = GaugeMetricFamily(
        f"{PREFIX}_node_drift",
        "Drift of each node that has any",
        labels=["node", "kind", "severity"],
    )
    counts = Counter(drift.kind for audit in audits for drift in audit.report.drift)
    for kind in get_args(DriftKind):
        whole.add_metric([kind], counts[kind])
    for audit in audits:
        for (kind, severity), count in Counter(
            (drift.kind, drift.severity) for drift in audit.report.drift
        ).items():
            by_node.add_metric([audit.report.name, kind, severity], count)
    yield from (whole, by_node)


def _usage_metrics(states: Sequence[NodeState]) -> Iterator[Metric]:
    used = GaugeMetricFamily(
        f"{PREFIX}_node_used",
        "Used and reserved amounts of the node: vcpus, memory_mb, disk_mb",
        labels=["node", "resource"],
    )
    total = GaugeMetricFamily(
        f"{PREFIX}_node_total",
        "Amounts that the node has: vcpus, memory_mb, disk_mb",
        labels=["node", "resource"],
    )
    for state in states:
        node = state.node
        totals = (
            node.vcpus,
            node.memory_mb,
            None if node.local_gb is None else node.local_gb * 1024,
        )
        for resource, amount in zip(RESOURCES, totals, strict=True):
            used.add_metric([node.name, resource], getattr(state.used, resource))
            if amount is not None:
                total.add_metric([node.name, resource], amount)
    yield from (used, total)


def _claim_metrics(states: Sequence[NodeState]) -> Metric:
    family = GaugeMetricFamily(
        f"{PREFIX}_claims_open", "Claims that are counted as usage", labels=["node", "purpose"]
    )
    for state in states:
        counts = Counter(claim.purpose for claim in state.claims.values())
        for purpose in get_args(Purpose):
            family.add_metric([state.node.name, purpose], counts[purpose])
    return family


def _of_nodes(name: str, what: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"{PREFIX}_node_{name}", what, labels=["node"])
    for node, value in values.items():
        family.add_metric([node], value)
    return family
