"""What is asked of a database, counted: cost without a clock, because a clock measures the machine
too.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event


@contextmanager
def counted() -> Iterator[list[str]]:
    """The statements that are sent to any database inside, in a list that grows."""
    sent: list[str] = []

    def keep(*executed: Any) -> None:
        sent.append(executed[2])

    event.listen(Engine, "before_cursor_execute", keep)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", keep)
