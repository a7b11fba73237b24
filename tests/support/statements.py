"""What is asked of a database, counted: cost without a clock, because a clock measures the machine
too.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from sqlalchemy import Engine, event

from agent.store.prepared import PreparedStatement


@contextmanager
def counted() -> Iterator[list[str]]:
    """The statements that are sent to any database inside, in a list that grows."""
    sent: list[str] = []

    def keep(*executed: Any) -> None:
        sent.append(executed[2])

    execute = PreparedStatement._executed

    def executed(statement: PreparedStatement, *given: Any) -> Any:
        sent.append(statement._text[0])
        return execute(statement, *given)

    event.listen(Engine, "before_cursor_execute", keep)
    try:
        # These bypass SQLAlchemy's events.
        with patch.object(PreparedStatement, "_executed", executed):
            yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", keep)
