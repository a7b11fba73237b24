"""The time that ages are counted by: the wall's when the process began, and from then on nobody can
set it.
"""

import time

_BEGAN = time.time() - time.monotonic()


def now() -> float:
    """Seconds since the epoch, if nobody has set the clock since the process began."""
    return _BEGAN + time.monotonic()
