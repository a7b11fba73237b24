"""Deadline of the present thread's work, which bounds every wait inside it."""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from agent.errors import AgentError

_OF_THREAD = threading.local()


class DeadlinePassed(AgentError):
    """The work was not done in time, because a lock was held by other work.
    Remedy: try again; what is done already is not done twice.
    """

    code = "agent.deadline"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} could not be had in time", "try again; what is done already is not done twice"
        )


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Give the block's work so many seconds; an earlier deadline around it stays in force."""
    before = getattr(_OF_THREAD, "until", math.inf)
    _OF_THREAD.until = min(before, time.monotonic() + seconds)
    try:
        yield
    finally:
        _OF_THREAD.until = before


def left(at_most: float = math.inf) -> float:
    """Return the seconds that are left, at most ``at_most``; ``at_most`` where there is no
    deadline.
    """
    until = getattr(_OF_THREAD, "until", math.inf)
    return at_most if until == math.inf else max(0.0, min(at_most, until - time.monotonic()))


def acquired(lock: "threading.Lock | threading.Semaphore") -> bool:
    """Wait for a lock until the deadline; return whether it was acquired."""
    seconds = left()
    return lock.acquire() if seconds == math.inf else lock.acquire(timeout=seconds)


@contextmanager
def held(lock: "threading.Lock | threading.Semaphore", what: str) -> Iterator[None]:
    """Hold a lock on ``what`` while the block runs.

    :raises DeadlinePassed: it was not free in time.
    """
    if not acquired(lock):
        raise DeadlinePassed(what)
    try:
        yield
    finally:
        lock.release()
