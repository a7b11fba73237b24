"""When a node is audited of which something has changed, on record or as the driver noticed: soon, and all changes of one moment together."""

import math
import time
from collections.abc import Callable
from threading import Lock

# How long the first change waits for others, in seconds: a burst of claims becomes one audit.
GATHERING = 1.0


class DirtyNodes:
    """The nodes that wait, by uuid or by a pattern of their names. Threads tell of changes, the daemon's loop takes them; ``wake`` makes it look.

    What fails is not tried again from here: the node stays dirty, and the next audit of all comes after a pause of its own.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake, self._lock = wake, Lock()
        self._nodes: set[str] = set()
        self.due = math.inf

    def changed(self, node: str) -> None:
        """Something was promised or given back on the node, or is different there."""
        with self._lock:
            first = not self._nodes
            self._nodes.add(node)
            if first:
                self.due = time.monotonic() + GATHERING
        if first:
            self._wake()

    def take(self) -> frozenset[str]:
        """The nodes that wait; they wait no more."""
        with self._lock:
            taken = frozenset(self._nodes)
            self._nodes.clear()
            self.due = math.inf
        return taken
