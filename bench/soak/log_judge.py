"""Reads the daemon's log while it grows, and tells what is expected from what nothing explains."""

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

LEVELS = (" WARNING ", " ERROR ", " CRITICAL ")


@dataclass
class LogJudge:
    """``expected``: how often each expected message came, by fault. ``unexplained``: the lines that no active fault explains."""

    file: Path
    expected: Counter[str] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)
    lines: int = 0
    _read: int = 0
    _rest: str = ""

    def read(self, active: Collection[tuple[str, re.Pattern[str]]]) -> None:
        """Judge what was logged since the last time. ``active``: the faults in whose time the lines were written, and what each may have the daemon log."""
        if not self.file.exists():
            return
        with self.file.open("rb") as log:
            log.seek(self._read)
            data = log.read()
        self._read += len(data)
        *lines, self._rest = (self._rest + data.decode(errors="replace")).split("\n")
        for line in lines:
            self.lines += 1
            self._judge(line, active)

    def _judge(self, line: str, active: Collection[tuple[str, re.Pattern[str]]]) -> None:
        if not any(level in line for level in LEVELS) and "Traceback" not in line:
            return
        for fault, pattern in active:
            if pattern.search(line):
                self.expected[fault] += 1
                return
        self.unexplained.append(line)
