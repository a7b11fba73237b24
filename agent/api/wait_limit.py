"""The limit of requests that wait."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

from agent.api.problem import Busy
from agent.deadline import left


class WaitLimit:
    """A number of places for requests that wait. Each of them keeps a thread from serving others,
    so that there are fewer places than threads. Threads may share it.

    ``patience``: in seconds. A request waits for a place as long as a place was taken or freed
    within that time; otherwise none will be free soon.
    """

    def __init__(self, places: int, what: str, patience: float = 0) -> None:
        self._free, self._what, self._patience = places, what, patience
        self._changed = Condition()
        self._moved = 0.0

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place within the context.

        :raises Busy: there is none.
        """
        with self.place_if_free() as found:
            if not found:
                raise Busy(self._what)
            yield

    @contextmanager
    def place_if_free(self) -> Iterator[bool]:
        """Hold a place within the context if there is one; yield whether there is."""
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
