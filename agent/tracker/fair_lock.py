"""A lock that is given to who has waited longest, and wakes nobody else."""

import threading
from collections import deque
from types import TracebackType

from agent.deadline import DeadlinePassed, acquired


class FairLock:
    """Not reentrant. Whoever lets go hands it to the next one, so that nobody in between can take it."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._held = False
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        """:raises DeadlinePassed: it was not this thread's turn in time."""
        with self._mutex:
            if not self._held:
                self._held = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        # Free once it is this thread's turn.
        if not acquired(turn):
            with self._mutex:
                # Unless it was handed over in this moment.
                if turn in self._waiting:
                    self._waiting.remove(turn)
                    raise DeadlinePassed("the node, with which others are busy,")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._held = False
