"""Figures are counted from reports."""

from dataclasses import replace

import pytest

from agent.api.metrics import Metrics, NodeFigures
from agent.model.finding import Drift
from agent.service.daemon_service import DaemonService
from tests.unit.render.reports import node, report


class Agent:
    """What the daemon tells of an audit, to those who look and to the figures."""

    def __init__(self):
        self.service, self.metrics = DaemonService(lambda: None), Metrics()
        self.metrics.add(NodeFigures(self.service))

    def audited(self, report, hanging, *, whole):
        self.service.take_report(report, whole=whole)
        self.metrics.count_report(report, hanging, whole=whole)

    def text(self):
        return self.metrics.text()


@pytest.fixture
def metrics():
    agent = Agent()
    yield agent
    agent.service.stop()


def figures(metrics):
    lines = metrics.text().decode().splitlines()
    return {
        name: float(value)
        for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    }


def test_how_things_are_is_what_the_last_audit_of_each_node_showed(metrics):
    metrics.audited(report(), 0, whole=True)
    assert figures(metrics)['compute_node_agent_nodes{state="degraded"}'] == 1
    metrics.audited(report(nodes=(node(state="in-sync", drift=()),)), 0, whole=False)
    found = figures(metrics)
    assert (
        found['compute_node_agent_nodes{state="degraded"}'],
        found['compute_node_agent_nodes{state="in-sync"}'],
    ) == (0, 1)
    assert found['compute_node_agent_drift{kind="orphaned-allocation"}'] == 0


def test_what_could_not_be_looked_at_is_as_it_was(metrics):
    metrics.audited(report(), 0, whole=True)
    metrics.audited(report(nodes=(node(state="failed", drift=(), judged=False),)), 0, whole=True)
    found = figures(metrics)
    assert found['compute_node_agent_drift{kind="orphaned-allocation"}'] == 1
    assert (
        found["compute_node_agent_last_good_audit_timestamp_seconds"]
        == 0
        < found["compute_node_agent_last_audit_timestamp_seconds"]
    )
    # A name that somebody else has shows before anything else does, and so does that nobody has it
    # any more.
    conflict = Drift("name-conflict", "warning", "it is held", "")
    metrics.audited(
        report(nodes=(node(state="failed", drift=(conflict,), judged=False),)), 0, whole=True
    )
    metrics.audited(
        report(
            nodes=(
                node(
                    state="failed",
                    drift=(replace(conflict, detail="it is held by another"),),
                    judged=False,
                ),
            )
        ),
        0,
        whole=True,
    )
    assert figures(metrics)['compute_node_agent_drift{kind="name-conflict"}'] == 1
    metrics.audited(report(nodes=(node(state="in-sync", drift=()),)), 0, whole=True)
    assert figures(metrics)['compute_node_agent_drift{kind="orphaned-allocation"}'] == 0
