import pytest

from agent.model.operation import EnsureTrait
from agent.model.report import Drift, NodeReport, Outcome, Problem, exit_code

WARNING = Drift("overcommitted", "warning", "too much", "move")
INFO = Drift("foreign-provider", "info", "is kept", "")
ERROR = Problem("x", "wrong", "right")


def node(state, statuses=(), drift=()):
    outcomes = tuple(
        Outcome(EnsureTrait(name="CUSTOM_X", reason=""), status) for status in statuses
    )
    return NodeReport("n", "u", "fake", state, outcomes=outcomes, drift=drift)


@pytest.mark.parametrize("state", ["in-sync", "changed", "pending"])
def test_all_well_is_zero(state):
    assert exit_code([node(state)]) == 0


def test_no_nodes_and_no_errors_is_zero():
    assert exit_code([]) == 0


@pytest.mark.parametrize("state", ["changed", "pending"])
def test_changes_are_two_when_asked_for(state):
    assert exit_code([node("in-sync"), node(state)], detailed=True) == 2


def test_in_sync_is_zero_also_in_detail():
    assert exit_code([node("in-sync", drift=(INFO,))], detailed=True) == 0


def test_drift_of_severity_warning_is_two_when_asked_for():
    assert exit_code([node("in-sync", drift=(WARNING,))], detailed=True) == 2
    assert exit_code([node("in-sync", drift=(WARNING,))]) == 0


@pytest.mark.parametrize("states", [["failed"], ["refused"], ["failed", "refused"]])
def test_every_node_failed_is_one(states):
    assert exit_code([node(state) for state in states], detailed=True) == 1


@pytest.mark.parametrize("states", [["failed", "in-sync"], ["changed", "refused"]])
def test_some_nodes_failed_is_three(states):
    assert exit_code([node(state) for state in states], detailed=True) == 3


def test_some_operations_failed_is_three():
    assert exit_code([node("degraded", ["done", "failed", "skipped"])], detailed=True) == 3


def test_every_operation_failed_is_one():
    assert exit_code([node("degraded", ["failed", "skipped"])]) == 1


def test_incomplete_facts_alone_are_three():
    assert exit_code([node("degraded")]) == 3
    assert exit_code([node("degraded", ["planned"])]) == 3


def test_an_error_of_the_run_is_one_without_and_three_with_a_node_that_succeeded():
    assert exit_code([], [ERROR]) == 1
    assert exit_code([node("failed")], [ERROR]) == 1
    assert exit_code([node("in-sync")], [ERROR]) == 3
