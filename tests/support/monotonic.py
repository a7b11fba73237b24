"""The clock that never goes back, as a test sets it."""


class Clock:
    """Stands in place of the module ``time`` where only the monotonic clock is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now
