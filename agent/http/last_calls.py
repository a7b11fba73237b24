"""Calls of several threads through one pool of connections: what is not used any more is closed.

A server, or a balancer before it, accepts so many connections and lets others wait. Where many
agents begin at once, connections that one of them has and does not use would keep those waiting
that another one needs, or this one itself.
"""

import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
_HERE = threading.local()


class LastCalls:
    """Closes idle connections as soon as no call waits to begin: a thread that ends a call has no
    other one then. The last call leaves one connection to each server, for the next request.

    ``close_idle`` is told how many connections to keep. An exception of a call counts as the end
    of all that had not begun.

    Whoever makes calls in one of several calls should make them one after the other
    (:meth:`in_one`): more threads would need more connections than there are calls side by side,
    and close those that the calls around need.
    """

    def __init__(self, calls: int, close_idle: Callable[[int], None]) -> None:
        self._close_idle = close_idle
        self._lock = threading.Lock()
        self._several = calls > 1
        self._waiting, self._running = calls, 0

    def run(self, call: Callable[[], Result]) -> Result:
        """Make one of the calls."""
        with self._lock:
            self._waiting, self._running = self._waiting - 1, self._running + 1
        _HERE.in_one = self._several
        try:
            return call()
        except BaseException:
            with self._lock:
                self._waiting = 0
            raise
        finally:
            _HERE.in_one = False
            with self._lock:
                self._running -= 1
                running, none_waits = self._running, self._waiting <= 0
            if none_waits:
                self._close_idle(0 if running else 1)

    @staticmethod
    def in_one() -> bool:
        """Tell whether this thread is in one of several calls."""
        return getattr(_HERE, "in_one", False)
