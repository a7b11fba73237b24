"""The rest of answers that clients have not taken yet: one thread sends all of them, so that no
worker thread waits for a client.
"""

import logging
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

LOG = logging.getLogger(__name__)

# Beyond so many unsent answers or bytes, the connections that have waited longest are dropped.
MOST_ANSWERS = 128
MOST_UNSENT = 8 * 1024 * 1024
CHUNK = 64 * 1024
# Seconds between two looks at the deadlines.
PAUSE = 0.1


class SendBuffer:
    """Replaces the file to which cheroot writes a connection: keeps what the client does not take
    at once. One thread at a time may use it.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._left = bytearray()
        self.holds = False
        """Whether what is written waits for what follows, so that one call sends both."""

    @property
    def left(self) -> int:
        """The number of bytes that the client has not taken."""
        return len(self._left)

    def write(self, data: bytes) -> int:
        """Send as much as the client takes now, and keep the rest.

        :raises OSError: the client is gone.
        """
        sent = 0
        if len(data) > CHUNK:
            # Sent directly, unless behind a rest, because a copy of a large answer is as large.
            self.send()
            sent = 0 if self._left else self._sent(data)
        self._left += memoryview(data)[sent:]
        if not self.holds:
            self.send()
        return len(data)

    def send(self) -> None:
        """Send as much of the rest as the client takes now.

        :raises OSError: the client is gone; the rest is dropped.
        """
        del self._left[: self._sent(self._left)]

    def discard(self) -> None:
        """Drop the rest."""
        self._left.clear()

    def _sent(self, data: bytes | bytearray) -> int:
        sent = 0
        try:
            while sent < len(data):
                # Not by the socket's method, which would wait.
                sent += os.write(self._connection.fileno(), data[sent : sent + CHUNK])
        except BlockingIOError:
            pass
        except OSError:
            self.discard()
            raise
        return sent


class SendingConnection(Protocol):
    """What :class:`Sender` needs of a connection."""

    socket: socket.socket
    wfile: SendBuffer


class _PendingSend(NamedTuple):
    until: float
    then: Callable[[], None]


class Sender:
    """Sends the rest of each connection's :class:`SendBuffer`, for at most ``seconds`` each. Its
    thread lives while there is something to send.

    From :meth:`take` until the call of ``then``, only this thread uses a connection.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        # In the order of their arrival.
        self._waiting: dict[SendingConnection, _PendingSend] = {}
        self._thread: threading.Thread | None = None

    def take(self, connection: SendingConnection, then: Callable[[], None]) -> None:
        """Send the connection's rest, then call ``then``. If that fails or takes too long, the rest
        is dropped and the socket shut down before the call.
        """
        with self._lock:
            self._waiting[connection] = _PendingSend(time.monotonic() + self._seconds, then)
            self._selector.register(connection.socket, selectors.EVENT_WRITE, connection)
            self._drop_surplus()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="api sends", daemon=True)
                self._thread.start()

    def stop(self, seconds: float) -> None:
        """Limit the time of all present and later connections to ``seconds``. Returns at once."""
        with self._lock:
            self._seconds = min(self._seconds, seconds)
            latest = time.monotonic() + seconds
            for connection, waiting in self._waiting.items():
                self._waiting[connection] = waiting._replace(until=min(waiting.until, latest))

    def _drop_surplus(self) -> None:
        """Expire the oldest connections until the others are within the limits."""
        answers, unsent = (
            len(self._waiting),
            sum(connection.wfile.left for connection in self._waiting),
        )
        for connection, waiting in list(self._waiting.items())[:-1]:
            if answers <= MOST_ANSWERS and unsent <= MOST_UNSENT:
                break
            answers, unsent = answers - 1, unsent - connection.wfile.left
            self._waiting[connection] = waiting._replace(until=0.0)

    def _run(self) -> None:
        try:
            self._send_all()
        except BaseException:
            # The next connection starts another thread.
            with self._lock:
                self._thread = None
            raise

    def _send_all(self) -> None:
        while True:
            # Connections registered meanwhile are seen too. The wait is short, because deadlines
            # pass.
            for key, _ in self._selector.select(PAUSE):
                self._send(key.data)
            now = time.monotonic()
            with self._lock:
                late = [
                    connection
                    for connection, waiting in self._waiting.items()
                    if waiting.until <= now
                ]
            for connection in late:
                self._give_up(connection)
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return

    def _send(self, connection: SendingConnection) -> None:
        try:
            connection.wfile.send()
        except Exception as error:
            if not isinstance(error, OSError):
                LOG.exception("a connection to the local API is dropped")
            self._give_up(connection)
        else:
            if not connection.wfile.left:
                self._finish(connection)

    def _give_up(self, connection: SendingConnection) -> None:
        connection.wfile.discard()
        # The server sees the end of the client's data, and closes the connection like any other.
        with suppress(OSError):
            connection.socket.shutdown(socket.SHUT_RDWR)
        self._finish(connection)

    def _finish(self, connection: SendingConnection) -> None:
        with self._lock:
            waiting = self._waiting.pop(connection)
            self._selector.unregister(connection.socket)
        try:
            waiting.then()
        except Exception:
            # The other connections are sent to whatever the error was.
            LOG.exception("a connection to the local API is dropped")
            connection.socket.close()
