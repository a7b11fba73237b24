"""Listens to the changes of nodes that a driver reports."""

import threading
import time
from collections.abc import Callable

from agent.driver.threads import start_thread

LOCK_WAIT = 5.0
"""Seconds after which a call inside of ``changed`` is taken for one that waits for a lock."""
_PROBES = 3


class ChangeListener:
    """Notes the changes, and for the first few whether another thread can call the driver
    meanwhile.

    :param ask: makes a call of the driver.
    """

    def __init__(self, ask: Callable[[], object]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._begun = self._done = 0
        self.names: list[object] = []
        """What ``changed`` was called with."""
        self.waits = 0
        """How often a call of the driver did not return while ``changed`` ran."""

    def changed(self, name: str) -> None:
        """Note that the node called ``name`` has changed."""
        with self._lock:
            self.names.append(name)
            if self._begun == _PROBES:
                return
            self._begun += 1
        ended = threading.Event()
        start_thread(lambda: self._probe(ended), "conformance probe")
        free = ended.wait(LOCK_WAIT)
        with self._lock:
            self._done += 1
            self.waits += not free

    def settle(self) -> None:
        """Wait until the probes under way have ended."""
        end = time.monotonic() + 2 * LOCK_WAIT
        while self._done < self._begun and time.monotonic() < end:
            time.sleep(0.01)

    def _probe(self, ended: threading.Event) -> None:
        # What it raises ends in the future of the thread: here only the time counts.
        try:
            self._ask()
        finally:
            ended.set()
