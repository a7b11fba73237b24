"""The clock that ages are measured by: the wall clock at the start of the process, advanced by the
monotonic clock, so that setting the system's clock does not change it.
"""

import time

_BEGAN = time.time() - time.monotonic()


# In seconds: by how much the two clocks may differ before the difference counts. A difference that
# was measured anew for each moment would put equal moments microseconds apart.
TOLERATED = 1.0

# By how much the wall clock is ahead of this one.
_ahead = 0.0


def now() -> float:
    """Return seconds since the epoch, unaffected by clock changes since the process began."""
    return _BEGAN + time.monotonic()


def of_wall_clock(moment: float) -> float:
    """Return a moment that was just read from the wall clock, in seconds since the epoch, as a
    moment of this clock.
    """
    global _ahead  # noqa: PLW0603 - one for the process, as the wall clock is
    ahead = time.time() - _BEGAN - time.monotonic()
    if abs(ahead - _ahead) > TOLERATED:
        _ahead = ahead
    return moment - _ahead
