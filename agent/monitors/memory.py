"""The host's memory."""

import time

import psutil

from agent.monitors.monitor import Metric

MIB = 1024 * 1024


class MemoryMonitor:
    """What the kernel says of memory as a whole, huge pages among what is used."""

    type = "memory"

    def unsupported(self) -> str | None:
        """Every host has memory."""
        return None

    def metrics(self) -> list[Metric]:
        """In all, what could still be had, and how much of it is used."""
        now, memory = time.time(), psutil.virtual_memory()
        figures = (
            ("memory.total", memory.total / MIB, "mebibytes"),
            ("memory.available", memory.available / MIB, "mebibytes"),
            ("memory.used.percent", float(memory.percent), "percent"),
        )
        return [Metric(name, value, unit, "psutil", now) for name, value, unit in figures]
