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
    other one then.

    ``close_surplus`` closes all idle connections but one. Calls in a call close none
    (:meth:`in_one`), because the calls around go on with them.
    """

    def __init__(self, calls: int, close_surplus: Callable[[], None]) -> None:
        self._close_surplus = close_surplus
        self._lock = threading.Lock()
        self._waiting = calls

    def run(self, call: Callable[[], Result]) -> Result:
        """Make one of the calls."""
        with self._lock:
            self._waiting -= 1
        _HERE.in_one = True
        try:
            return call()
        finally:
            _HERE.in_one = False
            if self._waiting <= 0:
                self._close_surplus()

    @staticmethod
    def in_one() -> bool:
        """Tell whether this thread is in such a call."""
        return getattr(_HERE, "in_one", False)
