"""When the next audit is due: the schedule of audits of all nodes, and the nodes that wait for an
audit of their own.
"""

import math
import random
import time
from collections.abc import Callable
from threading import Lock

# In seconds. A change waits so long for others, then until none came for ``QUIET``, and no longer
# than ``LONGEST`` in all: an audit beside a burst of claims would hold the node's lock and the
# interpreter while they wait.
GATHERING = 1.0
QUIET = 0.25
LONGEST = 10.0


class DirtyNodes:
    """The nodes that have changed and wait for an audit, by uuid or by a pattern of their names.

    Threads report changes, the daemon's loop takes them; ``wake`` wakes the loop. A failed audit is
    not repeated from here: the next audit of all nodes covers the node, after a pause of its own.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake, self._lock = wake, Lock()
        self._nodes: set[str] = set()
        # When the first of the changes came.
        self._first = 0.0
        self.due = math.inf

    def add(self, node: str) -> None:
        """Add a node: something was claimed or released on it, or its host has changed."""
        now = time.monotonic()
        with self._lock:
            first = not self._nodes
            self._nodes.add(node)
            if first:
                self._first = now
            self.due = max(self._first + GATHERING, min(now + QUIET, self._first + LONGEST))
        if first:
            self._wake()

    def take(self) -> frozenset[str]:
        """Return the waiting nodes and empty the set."""
        with self._lock:
            taken = frozenset(self._nodes)
            self._nodes.clear()
            self.due = math.inf
        return taken


DEFAULT_INTERVAL = 60.0
"""Seconds."""
# The first audit comes within this part of the interval, because hosts that got power at the same
# moment start together.
START_JITTER = 0.05
# The first pause after a failure, in seconds; every further one is twice as long.
FIRST_PAUSE = 1.0


class Schedule:
    """Computes when the next audit is due, in seconds of the monotonic clock, which no change of
    the wall clock moves.

    ``interval``: seconds as in [DEFAULT] update_resources_interval, where 0 is the default and -1
    never.
    """

    def __init__(self, interval: int) -> None:
        now = time.monotonic()
        self.interval = interval if interval > 0 else DEFAULT_INTERVAL
        """Seconds from one audit to the next."""
        self.repeats = interval >= 0
        """Whether another audit follows by itself."""
        # A host's own offset within the interval, so that many hosts spread over all of it.
        self._phase = now + random.uniform(0, self.interval)
        self._failures = 0
        self.due = now + random.uniform(0, START_JITTER) * self.interval

    def at_once(self) -> None:
        """Make the next audit due now."""
        self.due = time.monotonic()

    def plan_after_success(self) -> None:
        """Schedule the next audit at the host's offset in the next interval; missed audits are not
        made up for.
        """
        self._failures = 0
        periods = math.floor((time.monotonic() - self._phase) / self.interval) + 1
        self.due = self._phase + periods * self.interval if self.repeats else math.inf

    def plan_after_failure(self) -> None:
        """Schedule the next audit after a pause that grows with each failure, never exceeds the
        interval, and is not in step with other hosts.
        """
        longest = min(self.interval, FIRST_PAUSE * 2 ** min(self._failures, 16))
        self._failures += 1
        self.due = time.monotonic() + random.uniform(0.5, 1.0) * longest
