"""Tells of an outage of Placement once, then now and then, and of its end."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

LOG = logging.getLogger(__name__)

FAILURES_A_LINE = 10
SECONDS_A_LINE = 300.0


@dataclass(slots=True)
class _Kind:
    """What was told of one kind of failure: when, and how many cycles failed since."""

    told_at: float
    suppressed: int = 0
    cycle: str = ""


class OutageLog:
    """One a process. A kind of failure is told at once, then at most once in ten failed cycles or five minutes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kinds: dict[str, _Kind] = {}
        self._since = 0.0
        self._lock = threading.Lock()

    def failed(self, kind: str, text: str, cycle: str = "") -> None:
        """A request got no answer, or one that says so. All failures of one ``cycle`` count once."""
        with self._lock:
            now = self._clock()
            if not self._kinds:
                self._since = now
            known = self._kinds.get(kind)
            if known is None:
                self._kinds[kind] = _Kind(now, cycle=cycle)
                LOG.warning("placement unreachable: %s", text)
                return
            if cycle and cycle == known.cycle:
                return
            known.cycle = cycle
            known.suppressed += 1
            if known.suppressed >= FAILURES_A_LINE or now - known.told_at >= SECONDS_A_LINE:
                LOG.warning("placement unreachable: %s (suppressed %s)", text, known.suppressed - 1)
                known.told_at, known.suppressed = now, 0

    def answered(self) -> None:
        """Placement answered."""
        if not self._kinds:
            return
        with self._lock:
            if self._kinds:
                LOG.info("placement reachable again after %.0f s", self._clock() - self._since)
            self._kinds.clear()
