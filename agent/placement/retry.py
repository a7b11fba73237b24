"""The retry policies: exponential waits with jitter and a cap, interrupted by a shutdown."""

import random
import threading
from collections.abc import Callable

from retrying import Retrying

from agent.errors import GenerationConflict, PlacementUnreachable
from agent.placement.codes import CLOSED, OUTAGE_STATUSES

MAX_ATTEMPTS = 4
LEAST_WAIT = 0.1
LONGEST_WAIT = 2.0
LEAST_READ_WAIT = 0.05
LONGEST_READ_WAIT = 0.2
# The maximum wait before each repetition of an operation on allocations, in seconds.
REPETITION_WAITS = (0.5, 1.0, 2.0)


def _seconds(attempt: int, least: float, longest: float) -> float:
    return random.uniform(least, min(longest, least * 4**attempt))


def _waits(
    cancelled: threading.Event, seconds: Callable[[int], float]
) -> Callable[[int, int], int]:
    """Return a wait function for ``retrying`` that waits by itself, because the library's sleep
    cannot be interrupted.

    :param seconds: how long to wait after an attempt, by its number from 1.
    """

    def wait(attempt: int, _elapsed_ms: int) -> int:
        cancelled.wait(seconds(attempt))
        return 0

    return wait


def _repetition_seconds(attempt: int) -> float:
    return random.uniform(0, REPETITION_WAITS[attempt - 1])


def _read_seconds(attempt: int) -> float:
    return _seconds(attempt, LEAST_READ_WAIT, LONGEST_READ_WAIT)


def conflict_policy(cancelled: threading.Event) -> Retrying:
    """Return the policy for operations on allocations: ``MAX_ATTEMPTS`` in all while generations
    conflict.
    """
    return Retrying(
        stop_max_attempt_number=MAX_ATTEMPTS,
        wait_func=_waits(cancelled, _repetition_seconds),
        wrap_exception=False,
        retry_on_exception=lambda error: isinstance(error, GenerationConflict),
    )


def read_policy(cancelled: threading.Event, *, patient: bool = False) -> Retrying:
    """Return the policy for GETs: one more attempt after a short wait if the service could not
    answer; three more if ``patient``.
    """

    def worth_repeating(error: BaseException) -> bool:
        return (
            isinstance(error, PlacementUnreachable)
            and error.kind in (CLOSED, "connect", "broken", "timeout")
            and not cancelled.is_set()
        )

    return Retrying(
        stop_max_attempt_number=MAX_ATTEMPTS if patient else 2,
        wait_func=_waits(cancelled, _repetition_seconds if patient else _read_seconds),
        retry_on_exception=worth_repeating,
        retry_on_result=lambda answer: answer.status in OUTAGE_STATUSES and not cancelled.is_set(),
        wrap_exception=False,
    )


def conflict_wait(attempt: int, cancelled: threading.Event) -> bool:
    """Wait before attempt number ``attempt`` + 1 of a cycle. Return whether the cycle was cancelled
    meanwhile.
    """
    return cancelled.wait(_seconds(attempt, LEAST_WAIT, LONGEST_WAIT))
