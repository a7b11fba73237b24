"""A trouble is told when it comes and when it goes."""

import logging

import pytest

from agent.model.finding import Drift, Problem
from agent.model.report import NodeReport
from agent.service.background import summary
from agent.service.log_writer import ProblemLog

BROKEN = Problem("driver.failed", "it is broken", "mend it")
ODD = Problem("driver.failed", "it is odd", "")
STANDBY = Problem("agent.standing-by", "standing by: host b has them", "none needed")


def node(*errors, state=None, name="n", drift=()):
    return NodeReport(
        name, "u", "fake", state or ("failed" if errors else "in-sync"), errors=errors, drift=drift
    )


class Clock:
    """The time, as the test says."""

    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def told(caplog, clock):
    """Tell ``news``; what that logged."""
    caplog.set_level(logging.INFO, "agent.service.log_writer")
    news = ProblemLog(clock)

    def tell(*nodes, errors=()):
        caplog.clear()
        news.log_changes(errors, nodes)
        return [(record.levelname, record.getMessage()) for record in caplog.records]

    return tell


def test_a_trouble_is_told_once_and_its_end_once(told):
    assert told(node(BROKEN)) == [("WARNING", "node n: it is broken (mend it)")]
    assert told(node(BROKEN)) == []
    assert told(node()) == [("INFO", "node n: well again")]
    assert told(node()) == []
    assert told(node(BROKEN)) == [("WARNING", "node n: it is broken (mend it)")]


def test_one_more_trouble_is_told_and_one_less_is_not_yet_the_end(told):
    told(node(BROKEN))
    assert told(node(BROKEN, ODD)) == [("WARNING", "node n: it is odd")]
    assert told(node(ODD)) == []
    assert told(node()) == [("INFO", "node n: well again")]


def test_nodes_that_could_not_be_looked_at_are_not_well_again(told):
    told(node(BROKEN))
    assert told(errors=[ODD]) == [("WARNING", "the agent: it is odd")]
    assert told(node(BROKEN)) == [("INFO", "the agent: well again")]


def test_a_node_that_is_degraded_without_a_word_is_not_well_again(told):
    told(node(BROKEN, state="degraded"))
    assert told(node(state="degraded")) == []
    assert told(node()) == [("INFO", "node n: well again")]


def test_drift_is_told_too_unless_it_is_told_elsewhere(told):
    drift = [
        Drift("adoption-needed", "warning", "not adopted", "adopt it"),
        Drift("foreign-provider", "info", "foreign", "none"),
        Drift("overcommitted", "warning", "too much", "move"),
        Drift("identity", "warning", BROKEN.message, ""),
    ]
    assert told(node(BROKEN, drift=drift)) == [
        ("WARNING", "node n: it is broken (mend it)"),
        ("WARNING", "node n: not adopted (adopt it)"),
    ]


@pytest.mark.parametrize(
    ("code", "level"),
    [
        ("driver.failed", "WARNING"),
        ("placement.name-conflict", "ERROR"),
        ("placement.identity-conflict", "ERROR"),
        ("reshape.needed", "ERROR"),
        ("reshape.failed", "CRITICAL"),
        ("agent.standing-by", "INFO"),
    ],
)
def test_the_level_says_how_bad_it_is(told, code, level):
    assert told(node(Problem(code, "wrong", ""))) == [(level, "node n: wrong")]


@pytest.mark.parametrize(
    ("errors", "nodes", "hanging", "line"),
    [
        ((), [node(), node(), node(state="changed")], 0, "ready: 1 changed, 2 in-sync"),
        ((), [], 0, "ready: no nodes"),
        ((), [node(), node(BROKEN)], 0, "degraded: 1 failed, 1 in-sync; it is broken"),
        ((BROKEN,), [], 0, "degraded: it is broken"),
        ((), [node()], 2, "degraded: 1 in-sync; hanging driver calls: 2"),
        ((), [node(state="degraded")], 0, "degraded: 1 degraded"),
        ((BROKEN,), [], 1, "degraded: it is broken; hanging driver calls: 1"),
        ((STANDBY,), [], 0, "standing by: host b has them"),
        ((STANDBY, BROKEN), [], 0, "degraded: standing by: host b has them"),
    ],
)
def test_the_status_is_one_line(errors, nodes, hanging, line):
    assert summary(errors, nodes, hanging) == line
