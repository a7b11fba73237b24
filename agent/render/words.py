"""Numbers of things, as people write them."""


def some(count: int, noun: str) -> str:
    """``1 claim``, ``2 claims``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
