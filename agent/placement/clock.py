"""The clock that ages are measured by: the wall clock at the start of the process, advanced by the
monotonic clock, so that setting the system's clock does not change it.
"""

import time

_BEGAN = time.time() - time.monotonic()


def now() -> float:
    """Return seconds since the epoch, unaffected by clock changes since the process began."""
    return _BEGAN + time.monotonic()
