import pytest

from agent.model.finding import Drift, Problem
from agent.model.operation import EnsureTrait
from agent.model.report import NodeReport, Outcome, exit_code

WARNING = Drift("overcommitted", "warning", "too much", "move")
INFO = Drift("foreign-provider", "info", "is kept", "")
ERROR = Problem("x", "wrong", "right")


def node(state, statuses=(), drift=()):
    outcomes = tuple(
        Outcome(EnsureTrait(name="CUSTOM_X", reason=""), status) for status in statuses
    )
    return NodeReport("n", "u", "fake", state, outcomes=outcomes, drift=drift)


SYNC, CHANGED, PENDING, FAILED, REFUSED, DEGRADED = map(
    node, ("in-sync", "changed", "pending", "failed", "refused", "degraded")
)
CASES = {
    "no nodes and no errors": ([], [], 0, 0),
    "in sync": ([SYNC], [], 0, 0),
    "changes are told in detail": ([SYNC, CHANGED], [], 0, 2),
    "changes to come are told in detail": ([SYNC, PENDING], [], 0, 2),
    "drift that only informs": ([node("in-sync", drift=(INFO,))], [], 0, 0),
    "drift that warns is told in detail": ([node("in-sync", drift=(WARNING,))], [], 0, 2),
    "every node failed": ([FAILED], [], 1, 1),
    "every node failed or was refused": ([FAILED, REFUSED], [], 1, 1),
    "some nodes failed": ([FAILED, SYNC], [], 3, 3),
    "some nodes were refused": ([CHANGED, REFUSED], [], 3, 3),
    "some operations failed": ([node("degraded", ["done", "failed", "skipped"])], [], 3, 3),
    "every operation failed": ([node("degraded", ["failed", "skipped"])], [], 1, 1),
    "incomplete facts alone": ([DEGRADED], [], 3, 3),
    "incomplete facts with a plan": ([node("degraded", ["planned"])], [], 3, 3),
    "an error of the run without nodes": ([], [ERROR], 1, 1),
    "an error of the run and a node that failed": ([FAILED], [ERROR], 1, 1),
    "an error of the run and a node that succeeded": ([SYNC], [ERROR], 3, 3),
}


@pytest.mark.parametrize(("nodes", "errors", "code", "detailed"), CASES.values(), ids=CASES)
def test_the_exit_code_says_how_the_run_went(nodes, errors, code, detailed):
    assert exit_code(nodes, errors) == code
    assert exit_code(nodes, errors, detailed=True) == detailed
