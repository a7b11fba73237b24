"""The report of an audit for monitoring: as the output of a Nagios plug-in, and as a file for the
textfile collector of Prometheus' node exporter.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from agent.model.finding import WELL
from agent.model.names import printable
from agent.model.report import NodeReport, Report

PREFIX = "compute_node_agent"
PluginState = Literal["OK", "WARNING", "CRITICAL", "UNKNOWN"]
PLUGIN_CODES: dict[PluginState, int] = {"OK": 0, "WARNING": 1, "CRITICAL": 2, "UNKNOWN": 3}
DETAILS_AT_MOST = 50


def plugin_state(report: Report) -> PluginState:
    """Return the state that a plug-in reports: ``UNKNOWN`` if no node could be audited,
    ``CRITICAL`` for errors, ``WARNING`` for differences and for drift of severity warning.
    """
    if not report.nodes and report.errors:
        return "UNKNOWN"
    if report.errors or any(node.errors or node.state not in WELL for node in report.nodes):
        return "CRITICAL"
    severities = {drift.severity for node in report.nodes for drift in node.drift}
    changes = any(node.outcomes for node in report.nodes)
    return "WARNING" if changes or "warning" in severities else "OK"


def render_plugin(report: Report) -> str:
    """Return the output of a plug-in: a line with the state and figures, then a line for each
    finding.
    """
    differences = sum(len(node.outcomes) for node in report.nodes)
    drift = Counter(drift.kind for node in report.nodes for drift in node.drift)
    errors = len(report.errors) + sum(len(node.errors) for node in report.nodes)
    figures = {
        "nodes": len(report.nodes),
        "differences": differences,
        "drift": drift.total(),
        "errors": errors,
    }
    shown = ", ".join(f"{name} {amount}" for name, amount in figures.items())
    kinds = f" ({', '.join(f'{kind} {count}' for kind, count in sorted(drift.items()))})"
    first = f"PLACEMENT {plugin_state(report)} - {shown}{kinds if drift else ''}"
    lines = [*_findings(report)]
    if len(lines) > DETAILS_AT_MOST:
        more = len(lines) - DETAILS_AT_MOST
        lines = [*lines[:DETAILS_AT_MOST], f"and {more} more: agent --once --observe"]
    performance = " ".join(f"{name}={amount}" for name, amount in figures.items())
    return "\n".join([f"{first} | {performance}", *lines, ""])


def render_textfile(report: Report, now: float) -> str:
    """Return the report as metrics in Prometheus' text format. ``now``: the end of the audit, in
    seconds since the epoch.
    """
    registry = CollectorRegistry()

    def gauge(name: str, what: str, *labels: str) -> Gauge:
        return Gauge(f"{PREFIX}_once_{name}", what, labels, registry=registry)

    gauge("timestamp_seconds", "End of the last audit by agent --once").set(now)
    gauge("errors", "Errors of the audit itself").set(len(report.errors))
    state = gauge("node_state", "1: the audit found this state", "node", "state")
    differences = gauge(
        "node_differences", "Changes that Placement would need, or that were made", "node", "op"
    )
    drift = gauge(
        "node_drift",
        "Drift: differences that the agent does not correct by itself",
        "node",
        "kind",
        "severity",
    )
    for node in report.nodes:
        # A file in UTF-8 cannot have the lone surrogates of a name.
        name = printable(node.name)
        state.labels(name, node.state).set(1)
        for op, count in sorted(_differences(node).items()):
            differences.labels(name, op).set(count)
        found = Counter((drift.kind, drift.severity) for drift in node.drift)
        for (kind, severity), count in sorted(found.items()):
            drift.labels(name, kind, severity).set(count)
    return generate_latest(registry).decode()


def _findings(report: Report) -> Iterator[str]:
    """Yield the errors, the drift and the differences, a line each."""
    for error in report.errors:
        yield _line("error", error.message, error.remedy)
    for node in report.nodes:
        name = printable(node.name)
        for error in node.errors:
            yield _line(f"{name}: error", error.message, error.remedy)
        for drift in node.drift:
            yield _line(f"{name}: {drift.kind}", drift.detail, drift.remedy)
        for op, count in sorted(_differences(node).items()):
            yield f"{name}: differences by {op}: {count}"


def _line(what: str, detail: str, remedy: str) -> str:
    # What follows a vertical bar is performance data; a command without its bars does harm.
    if "|" in remedy:
        remedy = "the report without --format nagios has the command"
    text = f"{what}: {printable(detail)}" + (f" ({printable(remedy)})" if remedy else "")
    return text.replace("|", "/")


def _differences(node: NodeReport) -> Counter[str]:
    return Counter(outcome.operation.op for outcome in node.outcomes)
