"""A connection to PostgreSQL whose waits all end, also when the server never answers.

In a module of its own because psycopg is an extra.
"""

import math
import time
from collections.abc import Generator
from typing import Any

import psycopg

from agent.deadline import left

# In seconds. Longer than the server lets a client wait for any lock, including that on its schema.
SILENCE_SECONDS = 150.0
# psycopg's minimum, in seconds.
LEAST_CONNECT_SECONDS = 2


class ServerConnection(psycopg.Connection[Any]):
    """A connection that is closed when the server has not answered in time, because the outcome of
    the last statement is then unknown.
    """

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **options: Any) -> Any:
        """Wait for an answer.

        :raises psycopg.OperationalError: none came within the thread's deadline, or for
            ``SILENCE_SECONDS``.
        """
        return super().wait(self._bound_waits(gen), *args, **options)

    def _bound_waits(self, waits: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Forward the waits, and end them when one takes too long."""
        seconds = left(SILENCE_SECONDS)
        until = time.monotonic() + seconds
        try:
            wanted = next(waits)
            while True:
                ready = yield wanted
                if ready:
                    until = time.monotonic() + left(SILENCE_SECONDS)
                elif time.monotonic() >= until:
                    waits.close()
                    self.close()
                    raise psycopg.OperationalError(
                        f"the server does not answer, for {seconds:.0f} s"
                    )
                wanted = waits.send(ready)
        except StopIteration as end:
            return end.value


def connect(
    _dialect: object, _record: object, arguments: Any, parameters: dict[str, Any]
) -> ServerConnection:
    """Open a connection within the thread's deadline, for SQLAlchemy's event ``do_connect``."""
    seconds = left()
    if seconds == 0:
        raise psycopg.OperationalError("there was no time left to connect")
    if seconds < math.inf:
        chosen = int(parameters.get("connect_timeout", seconds)) or seconds
        parameters = {
            **parameters,
            "connect_timeout": max(LEAST_CONNECT_SECONDS, int(min(chosen, seconds))),
        }
    return ServerConnection.connect(*arguments, **parameters)
