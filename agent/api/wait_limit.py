"""How many requests may wait at once for what the agent does not do by itself: audits, reloads,
Placement, the store.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

from agent.api.errors import Busy
from agent.deadline import left


class WaitLimit:
    """Each who waits keeps a thread from serving others, so that there are fewer places than
    threads. Threads may share it.

    ``patience``: for a place is waited as long as somebody else left within so many seconds; else
    nobody will soon.
    """

    def __init__(self, places: int, what: str, patience: float = 0) -> None:
        self._free, self._what, self._patience = places, what, patience
        self._changed = Condition()
        self._moved = 0.0

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place for as long as the context lasts.

        :raises Busy: there is none.
        """
        with self.place_if_free() as found:
            if not found:
                raise Busy(self._what)
            yield

    @contextmanager
    def place_if_free(self) -> Iterator[bool]:
        """The same, and whether there was one."""
        found = self._take()
        try:
            yield found
        finally:
            if found:
                self._leave()

    def _take(self) -> bool:
        with self._changed:
            while not self._free:
                seconds = left(self._moved + self._patience - time.monotonic())
                if seconds <= 0:
                    return False
                self._changed.wait(seconds)
            self._free -= 1
            self._moved = time.monotonic()
            return True

    def _leave(self) -> None:
        with self._changed:
            self._free += 1
            self._moved = time.monotonic()
            self._changed.notify()
