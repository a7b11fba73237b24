"""Figures are counted from reports."""

import pytest

from agent.api.metrics import Metrics
from tests.unit.render.reports import node, report


@pytest.fixture
def metrics():
    return Metrics()


def figures(metrics):
    lines = metrics.text().decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def test_everything_has_the_agents_prefix_and_is_there_from_the_start(metrics):
    found = figures(metrics)
    assert all(name.startswith("compute_node_agent_") for name in found)
    assert found['compute_node_agent_audits_total{state="failed"}'] == 0
    assert found['compute_node_agent_drift{kind="held-device"}'] == 0
    assert not [name for name in found if name.partition("{")[0].endswith("_created")]


def test_an_audit_counts_for_its_nodes_their_requests_and_their_operations(metrics):
    metrics.audited(report(), 2, whole=True)
    found = figures(metrics)
    assert found['compute_node_agent_audits_total{state="degraded"}'] == found['compute_node_agent_nodes{state="degraded"}'] == 1
    assert (found["compute_node_agent_audit_seconds_count"], found["compute_node_agent_audit_seconds_sum"]) == (1, 1.5)
    assert found['compute_node_agent_audit_step_seconds_sum{step="facts"}'] == 0.25
    assert found['compute_node_agent_placement_requests_total{method="GET"}'] == 1 + 3
    assert found['compute_node_agent_drift{kind="orphaned-allocation"}'] == 1
    assert found['compute_node_agent_operations_total{op="set-traits",status="failed"}'] == 1
    assert found["compute_node_agent_hanging_driver_calls"] == 2
    assert found["compute_node_agent_last_audit_timestamp_seconds"] > 0


def test_a_node_that_was_not_audited_counts_among_the_nodes_only(metrics):
    metrics.audited(report(nodes=(node(state="in-sync", outcomes=(), seconds={}, requests={}, drift=()),)), 0, whole=True)
    found = figures(metrics)
    assert (found['compute_node_agent_nodes{state="in-sync"}'], found['compute_node_agent_audits_total{state="in-sync"}']) == (1, 0)
    assert found["compute_node_agent_audit_seconds_count"] == 0


def test_how_things_are_is_what_the_last_whole_audit_showed(metrics):
    metrics.audited(report(), 0, whole=True)
    metrics.audited(report(nodes=(node(state="in-sync", drift=()),)), 0, whole=False)
    assert figures(metrics)['compute_node_agent_nodes{state="degraded"}'] == 1
    metrics.audited(report(nodes=(node(state="in-sync", drift=()),)), 0, whole=True)
    found = figures(metrics)
    assert (found['compute_node_agent_nodes{state="degraded"}'], found['compute_node_agent_nodes{state="in-sync"}']) == (0, 1)
    assert found['compute_node_agent_drift{kind="orphaned-allocation"}'] == 0


def test_a_dry_run_counts_for_its_requests_only(metrics):
    metrics.audited(report(dry_run=True), 0, whole=False)
    found = figures(metrics)
    assert found['compute_node_agent_placement_requests_total{method="GET"}'] == 4
    assert sum(value for name, value in found.items() if name.startswith(("compute_node_agent_audits_total", "compute_node_agent_operations"))) == 0
