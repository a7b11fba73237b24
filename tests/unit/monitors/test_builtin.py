"""The built-in monitors on this very host, and what cannot be arranged on it."""

from collections import namedtuple

import psutil

from agent.monitors.linux import CpuMonitor

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
