"""Monitors that measure, have nothing to measure, fail or hang."""

import logging
import threading
import time
from collections import namedtuple

import psutil
import pytest
from oslo_config import cfg

from agent.conf import options
from agent.errors import ConfigErrors
from agent.monitors import NAMESPACE, Metric, Monitors, load_monitors
from agent.monitors.linux import CpuMonitor
from tests.support import distribution

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


# --- more ---


class OtherCpuMonitor(CpuMonitor):
    pass


class NeedsMore(CpuMonitor):
    def __init__(self, more):
        pass


class NoMonitor:
    type = "nothing"


@pytest.fixture
def others(tmp_path, monkeypatch):
    """Monitors of somebody else."""
    plugins = {
        "other": f"{__name__}:OtherCpuMonitor",
        "needs": f"{__name__}:NeedsMore",
        "none": f"{__name__}:NoMonitor",
        "nowhere": "no_such_module_of_the_tests:M",
    }
    monkeypatch.syspath_prepend(
        str(distribution.install(tmp_path, "other-monitors", plugins, NAMESPACE))
    )


def loaded(*names):
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    conf.set_override("monitors", list(names), "compute")
    return load_monitors(conf)


def complaints(*names):
    with pytest.raises(ConfigErrors) as refused:
        loaded(*names)
    return [(error.message, error.remedy) for error in refused.value.errors]


def test_one_of_somebody_else_is_found_by_its_name(others):
    assert type(loaded("other")["other"]).__name__ == "OtherCpuMonitor"


def test_an_unknown_one_is_named_with_those_that_there_are():
    assert complaints("cpu", "cqu\n") == [
        ("[compute] monitors: cqu\\n: no such monitor", "installed: cpu, memory")
    ]


def test_two_of_one_type_are_refused(others):
    assert complaints("cpu", "memory", "other") == [
        ("[compute] monitors: cpu and other both measure cpu", "leave one of the two out")
    ]
    assert complaints("cpu", "cpu") == [
        ("[compute] monitors: cpu and cpu both measure cpu", "leave one of the two out")
    ]


def test_all_that_is_wrong_is_told_at_once(others):
    unknown, needs, none, nowhere, twice = [
        message for message, _ in complaints("x", "needs", "none", "nowhere", "cpu", "other")
    ]
    assert unknown == "[compute] monitors: x: no such monitor"
    assert needs.startswith("[compute] monitors: needs: it cannot be made: TypeError: ")
    assert (
        none
        == "[compute] monitors: none: it is no monitor, because it lacks type, unsupported or metrics"
    )
    assert nowhere == (
        "[compute] monitors: nowhere: it cannot be made: ModuleNotFoundError: No module named "
        "'no_such_module_of_the_tests'"
    )
    assert twice == "[compute] monitors: cpu and other both measure cpu"


# --- the built-in monitors on this very host, and what cannot be arranged on it ---


KINDS = ("user", "kernel", "idle", "iowait")
Times = namedtuple("Times", "user nice system idle iowait irq softirq steal guest guest_nice")


def figures(monitor):
    return {metric.name: metric.value for metric in monitor.metrics()}


def test_percentages_are_those_since_the_last_reading(monkeypatch):
    readings = iter(
        [
            Times(100.0, 10.0, 50.0, 800.0, 20.0, 5.0, 5.0, 10.0, 40.0, 1.0),
            Times(120.0, 15.0, 60.0, 850.0, 25.0, 5.0, 5.0, 20.0, 60.0, 1.0),
        ]
    )
    monkeypatch.setattr(psutil, "cpu_times", lambda: next(readings))
    monkeypatch.setattr(psutil, "cpu_freq", lambda: None)
    monitor = CpuMonitor()
    assert figures(monitor) == {
        "cpu.user.time": 110.0,
        "cpu.kernel.time": 50.0,
        "cpu.idle.time": 800.0,
        "cpu.iowait.time": 20.0,
    }
    found = figures(monitor)
    assert [found[f"cpu.{kind}.time"] for kind in KINDS] == [135.0, 60.0, 850.0, 25.0]
    # Of the 100 seconds that passed, 10 were stolen. What guests ran is a part of user time.
    assert [found[f"cpu.{kind}.percent"] for kind in KINDS] == [25.0, 10.0, 50.0, 5.0]


def test_without_time_passed_there_are_no_percentages_and_none_is_below_zero(monkeypatch):
    times = Times(100.0, 0.0, 50.0, 800.0, 20.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    readings = iter([times, times, times._replace(user=110.0, iowait=19.0)])
    monkeypatch.setattr(psutil, "cpu_times", lambda: next(readings))
    monitor = CpuMonitor()
    figures(monitor)
    assert not any(name.endswith(".percent") for name in figures(monitor))
    found = figures(monitor)
    assert found["cpu.iowait.percent"] == 0.0
    assert found["cpu.user.percent"] > 0


def test_the_frequency_is_there_where_the_host_tells_it(monkeypatch):
    frequency = namedtuple("Frequency", "current min max")
    for told, shown in (
        (frequency(2400.0, 0.0, 0.0), 2400.0),
        (frequency(0.0, 0.0, 0.0), None),
        (None, None),
    ):
        monkeypatch.setattr(psutil, "cpu_freq", lambda told=told: told)
        assert figures(CpuMonitor()).get("cpu.frequency") == shown
