"""What a measured process reports of itself. Both Pythons import it: that of the agent, and one
that has nova.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.line_count import LineCount

STATUS = Path("/proc/self/status")

Message = dict[str, Any]
"""One JSON document; a line on standard input asks for work, a line on standard output has its
figures.
"""


def status(file: Path = STATUS) -> Mapping[str, int]:
    """Return the numbers of a process: ``VmRSS`` and ``VmHWM`` (the most there was) in KiB,
    ``Threads``, and others.

    Not from getrusage, because that remembers what the parent had when it forked.
    """
    rows = (line.split() for line in file.read_text().splitlines())
    return {row[0].rstrip(":"): int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


class Stopwatch:
    """Measures pieces of work of this process. Constructed before any thread is started."""

    def __init__(self) -> None:
        self._lines = LineCount()
        self._begun = self._now()

    def _now(self) -> tuple[float, float, int | None]:
        return (
            time.perf_counter(),
            time.process_time(),
            self._lines.read(),
        )

    def begin(self) -> None:
        """Begin a piece of work."""
        self._begun = self._now()

    def figures(self) -> Message:
        """Return what the work has taken since it began, and what the process has now.

        ``seconds``; ``cpu``: seconds of the processor; ``lines`` of Python: None where they are
        not counted; ``resident`` and ``peak``: MiB; ``threads``.
        """
        seconds, cpu, count = self._now()
        begun, cpu_begun, before = self._begun
        lines = None if count is None or before is None else count - before
        now = status()
        return {
            "seconds": seconds - begun,
            "cpu": cpu - cpu_begun,
            "lines": lines,
            "resident": now["VmRSS"] / 1024,
            "peak": now["VmHWM"] / 1024,
            "threads": now["Threads"],
        }


def serve(stopwatch: Stopwatch, work: Callable[[Message], Message]) -> None:
    """Do one piece of work for each line of standard input, until it ends. What ``work`` returns is
    added to its figures; what it raises becomes one of its ``errors``.
    """
    for line in sys.stdin:
        asked = json.loads(line)
        stopwatch.begin()
        try:
            result = work(asked)
        except Exception as error:  # noqa: BLE001 - the bench shows whatever it is
            result = {"errors": [f"{type(error).__name__}: {error}"[:500]]}
        print(json.dumps({**stopwatch.figures(), **result}), flush=True)
