"""A connection to PostgreSQL on which no wait is for ever, also if the server takes what is sent and never answers."""

import math
import time
from collections.abc import Generator
from typing import Any

import psycopg

from agent.deadline import left

# Longer than the server itself lets anybody wait for a lock, that on its schema included.
SILENCE_SECONDS = 150.0
# psycopg waits for at least two.
LEAST_CONNECT_SECONDS = 2


class ServerConnection(psycopg.Connection[Any]):
    """Closed when the server has not answered in time: nobody knows what became of what was sent last."""

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **options: Any) -> Any:
        """Wait for an answer.

        :raises psycopg.OperationalError: none came in the time that the thread has, or for very long.
        """
        return super().wait(self._bounded(gen), *args, **options)

    def _bounded(self, waits: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """The same waits, of which none is for too long."""
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
                    raise psycopg.OperationalError(f"the server does not answer, for {seconds:.0f} s")
                wanted = waits.send(ready)
        except StopIteration as end:
            return end.value


def connect(_dialect: object, _record: object, arguments: Any, parameters: dict[str, Any]) -> ServerConnection:
    """For SQLAlchemy's event ``do_connect``."""
    seconds = left()
    if seconds == 0:
        raise psycopg.OperationalError("there was no time left to connect")
    if seconds < math.inf:
        asked = int(parameters.get("connect_timeout", seconds)) or seconds
        parameters = {**parameters, "connect_timeout": max(LEAST_CONNECT_SECONDS, int(min(asked, seconds)))}
    return ServerConnection.connect(*arguments, **parameters)
