"""Monitors that measure, have nothing to measure, fail or hang."""

import logging
import threading
import time

import pytest

from agent.monitors import Metric, Monitors

FIGURE = Metric("some.figure", 1.5, "percent", "tests", 1.0)


class Measures:
    type = "some"

    def __init__(self, *figures):
        self.figures = figures or (FIGURE,)

    def unsupported(self):
        return None

    def metrics(self):
        return list(self.figures)


class Fails(Measures):
    def metrics(self):
        raise OSError("no sensor\nfound")


class Exits(Measures):
    def metrics(self):
        raise SystemExit(1)


class Unsupported(Fails):
    def unsupported(self):
        return "this host has no\x1b sensor"


class Hangs(Measures):
    def __init__(self):
        super().__init__()
        self.free, self.asked = threading.Event(), 0

    def metrics(self):
        self.asked += 1
        self.free.wait(30)
        return [FIGURE]


@pytest.fixture
def hangs():
    monitor = Hangs()
    yield monitor
    monitor.free.set()


def polled(deadline=5.0, **monitors):
    return {one.monitor: one for one in Monitors(monitors, deadline, threading.Event()).poll()}


def test_a_monitor_that_raises_is_shown_failed_with_time_and_hides_no_other():
    begun = time.time()
    found = polled(first=Measures(), broken=Fails(), exits=Exits(), last=Measures())
    assert [one.status for one in found.values()] == ["ok", "failed", "failed", "ok"]
    assert found["first"].metrics == found["last"].metrics == (FIGURE,)
    assert found["broken"].metrics == ()
    assert found["broken"].text == "monitor broken: metrics raised OSError: no sensor\\nfound"
    assert all(begun <= one.taken_at <= time.time() for one in found.values())


def test_a_monitor_that_hangs_is_shown_failed_and_not_asked_again_before_it_is_back(hangs):
    monitors = Monitors({"hangs": hangs, "measures": Measures()}, 0.05, threading.Event())
    first, second = ({one.monitor: one for one in monitors.poll()} for _ in range(2))
    assert first["measures"].status == second["measures"].status == "ok"
    assert first["hangs"].status == second["hangs"].status == "failed"
    assert (
        first["hangs"].text
        == "monitor hangs: metrics did not answer within 0.05 s and was abandoned"
    )
    assert hangs.asked == 1
    hangs.free.set()
    end = time.monotonic() + 60
    while (found := {one.monitor: one for one in monitors.poll()})[
        "hangs"
    ].status != "ok" and time.monotonic() < end:
        time.sleep(0.01)
    assert found["hangs"].metrics == (FIGURE,)


def test_a_monitor_without_anything_to_measure_is_skipped():
    found = polled(no=Unsupported(), yes=Measures())
    assert (found["no"].status, found["no"].text) == ("skipped", r"this host has no\x1b sensor")
    assert found["yes"].status == "ok"


@pytest.mark.parametrize("value", ["1", True, None, float("nan"), float("inf")])
def test_what_is_no_figure_loses_all_of_its_monitor_alone(value):
    found = polled(
        wrong=Measures(FIGURE, Metric("some.figure", value, "percent", "tests", 1.0)),
        right=Measures(),
    )
    assert (found["wrong"].status, found["wrong"].metrics) == ("failed", ())
    assert found["wrong"].text.startswith(
        "it gives what is no metric: Metric(name='some.figure', value="
    )
    assert found["right"].status == "ok"


@pytest.mark.parametrize("answer", [None, 7, {FIGURE: 1}, iter([FIGURE])])
def test_what_is_no_sequence_is_a_failure(answer):
    monitor = Measures()
    monitor.metrics = lambda: answer
    assert (
        polled(wrong=monitor)["wrong"].text
        == f"its metrics are no sequence but {type(answer).__name__}"
    )


def test_an_agent_that_stops_waits_for_nobody(hangs):
    cancelled = threading.Event()
    threading.Timer(0.1, cancelled.set).start()
    begun = time.monotonic()
    first, second = Monitors({"hangs": hangs, "measures": Measures()}, 600, cancelled).poll()
    assert time.monotonic() - begun < 60
    assert (first.status, second.status) == ("failed", "failed")


def test_a_trouble_is_told_once_and_again_after_it_was_gone(caplog):
    monitor = Measures()
    monitors = Monitors({"some": monitor, "no": Unsupported()}, 5, threading.Event())
    with caplog.at_level(logging.INFO):
        for figures in (("x",), ("x",), (FIGURE,), ("x",), ("y",)):
            monitor.figures = figures
            monitors.poll()
    assert [
        record.getMessage() for record in caplog.records if record.name == "agent.monitors"
    ] == [
        f"monitor some gives no metrics: it gives what is no metric: {what!r}"
        for what in ("x", "x", "y")
    ]
