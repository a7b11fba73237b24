"""What clients have not taken of their answers yet, sent by one thread, so that none that serves
others waits for them.
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

# Of more unsent answers than these, or more bytes, those that wait for longest are dropped.
MOST_ANSWERS = 128
MOST_UNSENT = 8 * 1024 * 1024
CHUNK = 64 * 1024
# Seconds between two looks at the deadlines.
PAUSE = 0.1


class SendBuffer:
    """The file that a server writes a connection to. What its client does not take at once is kept.
    One thread at a time may use it.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._left = bytearray()
        self.bytes_written = 0

    @property
    def left(self) -> int:
        """How many bytes the client has not taken."""
        return len(self._left)

    def write(self, data: bytes) -> int:
        """Send what is taken, and keep the rest.

        :raises OSError: the client is gone.
        """
        # Behind what is left, or else at once, because a copy of a large answer is as large.
        sent = 0 if self._left else self._sent(data)
        self._left += memoryview(data)[sent:]
        self.send()
        self.bytes_written += len(data)
        return len(data)

    def send(self) -> None:
        """Send of the rest what is taken now.

        :raises OSError: the client is gone, and the rest forgotten.
        """
        del self._left[: self._sent(self._left)]

    def discard(self) -> None:
        """Forget the rest."""
        self._left.clear()

    def _sent(self, data: bytes | bytearray) -> int:
        sent = 0
        try:
            while sent < len(data):
                # Not by the socket's own method, which would wait.
                sent += os.write(self._connection.fileno(), data[sent : sent + CHUNK])
        except BlockingIOError:
            pass
        except OSError:
            self.discard()
            raise
        return sent


class SendingConnection(Protocol):
    """A connection, as far as it is sent to."""

    socket: socket.socket
    wfile: SendBuffer


class _PendingSend(NamedTuple):
    until: float
    then: Callable[[], None]


class Sender:
    """Sends to connections what is left in their outboxes, for at most ``seconds`` each. Its thread
    lives while there is something to send.

    From :meth:`take` until ``then`` a connection is this thread's alone.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        # In the order in which they came.
        self._waiting: dict[SendingConnection, _PendingSend] = {}
        self._thread: threading.Thread | None = None

    def take(self, connection: SendingConnection, then: Callable[[], None]) -> None:
        """Send to it, and call ``then`` when all is sent; if that cannot be, with an outbox that is
        empty and a socket that is shut.
        """
        with self._lock:
            self._waiting[connection] = _PendingSend(time.monotonic() + self._seconds, then)
            self._selector.register(connection.socket, selectors.EVENT_WRITE, connection)
            self._drop_surplus()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="api sends", daemon=True)
                self._thread.start()

    def stop(self, seconds: float) -> None:
        """Wait no longer than so many seconds for whoever is sent to now, or comes yet. Returns at
        once.
        """
        with self._lock:
            self._seconds = min(self._seconds, seconds)
            latest = time.monotonic() + seconds
            for connection, waiting in self._waiting.items():
                self._waiting[connection] = waiting._replace(until=min(waiting.until, latest))

    def _drop_surplus(self) -> None:
        """Let the time of the oldest be up, so that the rest is no more than may be."""
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
            # Whoever comes next begins it anew.
            with self._lock:
                self._thread = None
            raise

    def _send_all(self) -> None:
        while True:
            # Whoever is registered meanwhile is seen too; a moment at most, because deadlines pass.
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
        # Seen as the end of what it sends, and closed like any other.
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
            # Whatever it was, the others are sent to.
            LOG.exception("a connection to the local API is dropped")
            connection.socket.close()
