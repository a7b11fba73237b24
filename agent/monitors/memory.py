"""Monitor of the host's memory."""

import time

import psutil

from agent.monitors.monitor import Metric

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
