"""The lines of Python that a process executes, counted by the interpreter itself.

They are nearly the same in every run and on every machine with the same interpreter, but counting
makes the process ten times as slow: what is counted is not timed.
"""

import os
import sys
import threading
from itertools import count
from types import FrameType
from typing import Any

VARIABLE = "BENCH_COUNT_LINES"
"""Environment variable of a process that counts."""


class LineCount:
    """Counts from its construction on, if the environment asks for it: the thread that constructs
    it, outside the functions that run already, and threads that are started later. Calls and
    returns count as lines.
    """

    def __init__(self) -> None:
        # Each read counts as a line too. Threads may count at once, which an integer would not bear.
        self._count = count()
        self._counts = VARIABLE in os.environ
        if self._counts:
            threading.settrace(self._trace)
            sys.settrace(self._trace)

    def read(self) -> int | None:
        """Return the count; None if nothing is counted."""
        return next(self._count) if self._counts else None

    def _trace(self, _frame: FrameType, _event: str, _argument: Any) -> Any:
        next(self._count)
        return self._trace
