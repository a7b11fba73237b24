"""Until when the present thread's work has to be done: whatever it waits for, it waits for no
longer.
"""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from agent.errors import AgentError

_OF_THREAD = threading.local()


class DeadlinePassed(AgentError):
    """The work was not done in its time, because others were in the way."""

    code = "agent.deadline"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} could not be had in time", "try again; what is done already is not done twice"
        )


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """The block's work has so many seconds."""
    before = getattr(_OF_THREAD, "until", math.inf)
    _OF_THREAD.until = min(before, time.monotonic() + seconds)
    try:
        yield
    finally:
        _OF_THREAD.until = before


def left(at_most: float = math.inf) -> float:
    """The seconds that are left, and no more than ``at_most``; infinite where nothing bounds the
    work.
    """
    until = getattr(_OF_THREAD, "until", math.inf)
    return at_most if until == math.inf else max(0.0, min(at_most, until - time.monotonic()))


def acquired(lock: "threading.Lock | threading.Semaphore") -> bool:
    """Wait for a lock, and return whether it was free in time."""
    seconds = left()
    return lock.acquire() if seconds == math.inf else lock.acquire(timeout=seconds)


@contextmanager
def held(lock: "threading.Lock | threading.Semaphore", what: str) -> Iterator[None]:
    """Hold a lock on ``what``.

    :raises DeadlinePassed: it was not free in time.
    """
    if not acquired(lock):
        raise DeadlinePassed(what)
    try:
        yield
    finally:
        lock.release()
