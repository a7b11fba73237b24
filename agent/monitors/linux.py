"""Monitors of a Linux host: its processors (frequency, and what their time is spent on) and its
memory.
"""

import time
from collections.abc import Mapping

import psutil

from agent.monitors import Metric

# Counted in user time already.
GUESTS = ("guest", "guest_nice")


class CpuMonitor:
    """Measures the CPUs. Times are those of all CPUs since the host started; percentages are those
    since the last measurement, and missing in the first.
    """

    type = "cpu"

    def __init__(self) -> None:
        self._last: Mapping[str, float] | None = None

    def unsupported(self) -> str | None:
        """Return None: every host has processors."""
        return None

    def metrics(self) -> list[Metric]:
        """Return the times and percentages, and the frequency where the host reports it."""
        now, times = time.time(), _times()
        last, self._last = self._last, times
        figures = [(f"cpu.{kind}.time", times[kind], "seconds") for kind in times if kind != "all"]
        if last is not None and (elapsed := times["all"] - last["all"]) > 0:
            # On some kernels a counter may go back a little.
            figures += [
                (
                    f"cpu.{kind}.percent",
                    max(times[kind] - last[kind], 0.0) * 100 / elapsed,
                    "percent",
                )
                for kind in times
                if kind != "all"
            ]
        frequency = psutil.cpu_freq()
        if frequency is not None and frequency.current > 0:
            figures.append(("cpu.frequency", float(frequency.current), "megahertz"))
        return [Metric(name, value, unit, "psutil", now) for name, value, unit in figures]


def _times() -> Mapping[str, float]:
    """Return the seconds by kind, and their sum."""
    found = psutil.cpu_times()
    every = {
        kind: float(seconds) for kind, seconds in found._asdict().items() if kind not in GUESTS
    }
    return {
        "user": every["user"] + every["nice"],
        "kernel": every["system"],
        "idle": every["idle"],
        "iowait": every["iowait"],
        "all": sum(every.values()),
    }


MIB = 1024 * 1024


class MemoryMonitor:
    """Measures the memory as the kernel reports it; huge pages count as used."""

    type = "memory"

    def unsupported(self) -> str | None:
        """Return None: every host has memory."""
        return None

    def metrics(self) -> list[Metric]:
        """Return the total, what is available, and the percentage that is used."""
        now, memory = time.time(), psutil.virtual_memory()
        figures = (
            ("memory.total", memory.total / MIB, "mebibytes"),
            ("memory.available", memory.available / MIB, "mebibytes"),
            ("memory.used.percent", float(memory.percent), "percent"),
        )
        return [Metric(name, value, unit, "psutil", now) for name, value, unit in figures]
