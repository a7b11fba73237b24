"""Nodes that were well need no audit as long as they are as they were, and one from time to time
all the same.
"""

from collections.abc import Hashable
from dataclasses import replace

import pytest

from agent.audit.fleet_nodes import UnchangedNodes
from agent.model.report import Drift, NodeReport, Problem
from tests.unit.render.reports import node as shown

LOW, HIGH = "00000000-0000-4000-8000-000000000001", "ffff0000-0000-4000-8000-000000000001"
WELL = NodeReport(
    "n",
    LOW,
    "ironic",
    "changed",
    outcomes=shown().outcomes,
    requests={"GET": 3},
    seconds={"total": 1.0},
)


class Nodes(UnchangedNodes):
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(600, lambda: self.now)

    def at(self, now: float, uuid: str = LOW, mark: Hashable = "as it was") -> NodeReport | None:
        self.now = now
        return self.report(uuid, mark)


@pytest.fixture
def nodes() -> Nodes:
    made = Nodes()
    made.audited(LOW, "as it was", WELL)
    made.audited(HIGH, "as it was", WELL)
    return made


def test_what_was_well_is_in_sync_without_an_audit_and_nothing_of_the_last_one_counts_again(nodes):
    report = nodes.at(1)
    assert (report.state, report.outcomes, report.requests, report.seconds) == (
        "in-sync",
        (),
        {},
        {},
    )
    assert (report.name, report.tree) == (WELL.name, WELL.tree)


def test_another_mark_is_an_audit(nodes):
    assert nodes.at(1, mark="otherwise") is None
    assert nodes.at(1) is not None


def test_each_node_has_its_own_time_within_the_second_half_of_the_interval(nodes):
    assert [nodes.at(now) is not None for now in (299, 301)] == [True, False]
    assert [nodes.at(now, HIGH) is not None for now in (599, 601)] == [True, False]


@pytest.mark.parametrize(
    "unwell",
    [
        {"state": "failed"},
        {"state": "degraded"},
        {"state": "refused"},
        {"errors": (Problem("x", "wrong", ""),)},
        {"drift": (Drift("held-device", "info", "waits", ""),)},
    ],
    ids=["failed", "degraded", "refused", "error", "drift"],
)
def test_a_node_that_is_not_quite_well_is_audited_every_time(nodes, unwell):
    nodes.audited(LOW, "as it was", replace(WELL, **unwell))
    assert nodes.at(1) is None


def test_nodes_that_are_gone_are_forgotten(nodes):
    nodes.keep([HIGH])
    assert nodes.at(1) is None
    assert nodes.at(1, HIGH) is not None


def test_no_interval_is_an_audit_every_time():
    nodes = UnchangedNodes(0, lambda: 0.0)
    nodes.audited(LOW, "as it was", WELL)
    assert nodes.report(LOW, "as it was") is None
