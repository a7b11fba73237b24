"""Things that are told later, unless something else comes first."""

import logging
import time
from collections.abc import Callable
from threading import Condition, Thread

LOG = logging.getLogger(__name__)


class Debouncer:
    """Calls ``tell`` once for all that was put ``seconds`` ago and not cancelled since. ``tell`` is
    called holding no lock.
    """

    def __init__(self, seconds: float, tell: Callable[[], None]) -> None:
        self._seconds, self._tell = seconds, tell
        self._due: dict[str, float] = {}
        self._changed = Condition()
        self._closed = False
        self._thread: Thread | None = None

    def put(self, key: str) -> None:
        """Tell of it later; anew if it waits already."""
        with self._changed:
            if self._closed:
                return
            # Behind the others, so that the first is always the next.
            self._due.pop(key, None)
            self._due[key] = time.monotonic() + self._seconds
            if self._thread is None:
                self._thread = Thread(target=self._run, name="libvirt stopped guests", daemon=True)
                self._thread.start()
            self._changed.notify()

    def cancel(self, key: str) -> None:
        """Do not tell of it."""
        with self._changed:
            self._due.pop(key, None)

    def close(self) -> None:
        """Tell of nothing any more, and end."""
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
                # Of the others is told all the same.
                LOG.exception("telling of a guest that has stopped")

    def _next(self) -> bool:
        """Wait until something is due; False at the end."""
        with self._changed:
            while not self._closed:
                first = next(iter(self._due.items()), None)
                left = None if first is None else first[1] - time.monotonic()
                if first is not None and left is not None and left <= 0:
                    del self._due[first[0]]
                    return True
                self._changed.wait(left)
            return False
