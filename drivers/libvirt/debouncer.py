"""Delayed notifications that can be cancelled."""

import logging
import time
from collections.abc import Callable
from threading import Condition, Thread

LOG = logging.getLogger(__name__)


class Debouncer:
    """Calls ``tell`` for each key that was put ``seconds`` ago and not cancelled since. ``tell`` is
    called holding no lock.
    """

    def __init__(self, seconds: float, tell: Callable[[], None]) -> None:
        self._seconds, self._tell = seconds, tell
        self._due: dict[str, float] = {}
        self._changed = Condition()
        self._closed = False
        self._thread: Thread | None = None

    def put(self, key: str) -> None:
        """Notify of ``key`` later; restarts the delay if it waits already."""
        with self._changed:
            if self._closed:
                return
            # Put last, so that the first key is always the next one due.
            self._due.pop(key, None)
            self._due[key] = time.monotonic() + self._seconds
            if self._thread is None:
                self._thread = Thread(target=self._run, name="libvirt stopped guests", daemon=True)
                self._thread.start()
            self._changed.notify()

    def cancel(self, key: str) -> None:
        """Drop the notification of ``key``."""
        with self._changed:
            self._due.pop(key, None)

    def close(self) -> None:
        """Drop all notifications and end the thread."""
        with self._changed:
            self._closed = True
            self._due.clear()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while self._next():
            try:
                self._tell()
            except Exception:
                # The other notifications are made all the same.
                LOG.exception("reporting a guest that has stopped")

    def _next(self) -> bool:
        """Wait until a key is due; False when closed."""
        with self._changed:
            while not self._closed:
                first = next(iter(self._due.items()), None)
                left = None if first is None else first[1] - time.monotonic()
                if first is not None and left is not None and left <= 0:
                    del self._due[first[0]]
                    return True
                self._changed.wait(left)
            return False
