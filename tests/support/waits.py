"""An event in the place of the one that a shutdown sets, for tests of how long is waited."""

import threading
from collections.abc import Callable


class Waits(threading.Event):
    """Notes how long it was waited for, in seconds, and does not wait. ``during`` is called at each
    wait.
    """

    def __init__(self, during: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.seconds: list[float | None] = []
        self._during = during

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout)
        self._during()
        return self.is_set()
