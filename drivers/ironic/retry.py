"""How often ironic is asked again: many times when the agent starts, a few times in a run."""

import logging
import random
import threading
from collections.abc import Callable

from retrying import Retrying

from agent.errors import NotReady
from drivers.ironic.failure import CREDENTIALS

LOG = logging.getLogger(__name__)

TRIES = 3
LONGEST_WAIT = 2.0
# So that the start ends by itself, with a reason, before it is given up from outside; in seconds.
MARGIN = 5.0


def patient(stopped: threading.Event) -> Retrying:
    """For a run: ``TRIES`` in all, after short waits of different length."""
    return _policy(stopped, lambda: random.uniform(0, LONGEST_WAIT), stop_max_attempt_number=TRIES)


def persistent(stopped: threading.Event, retries: int, interval: float, deadline: float) -> Retrying:
    """For a start: so many more times, so many seconds apart, and no longer than ``deadline``."""
    return _policy(stopped, lambda: interval, stop_max_attempt_number=retries + 1, stop_max_delay=max(0.0, deadline - MARGIN - interval) * 1000)


def _policy(stopped: threading.Event, pause: Callable[[], float], **limits: float) -> Retrying:
    reason = ""

    def worth_repeating(error: BaseException) -> bool:
        nonlocal reason
        reason = str(error)
        return isinstance(error, NotReady) and error.data.get("kind") != CREDENTIALS and not stopped.is_set()

    def wait(attempt: int, _elapsed_ms: int) -> int:
        LOG.log(logging.WARNING if attempt == 1 else logging.DEBUG, "%s; it is asked again", reason)
        # Waited here, because the library's own sleep cannot be interrupted.
        stopped.wait(pause())
        return 0

    return Retrying(retry_on_exception=worth_repeating, wait_func=wait, wrap_exception=False, **limits)
