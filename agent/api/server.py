"""The API's server: cheroot on a Unix socket, in front of it a queue that slow clients cannot
block.
"""

import logging
import queue
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from cheroot.wsgi import Server

from agent.api.connection import Gateway, LocalConnection, Request
from agent.api.receive_buffer import MAX_BODY, MAX_HEAD
from agent.api.request_queues import WorkerThreads
from agent.api.send_buffer import Sender

LOG = logging.getLogger(__name__)

NAME = "compute-node-agent"
# Threads, beside one for health alone.
WORKERS = 8
# Connections on which no whole request has come yet, and those whose request waits for a thread.
MAX_WAITING = 128
MAX_QUEUED = 128
BACKLOG = 512
# In bytes: what has arrived on all connections and is not answered.
MOST_ARRIVED = 12 * 1024 * 1024
# Seconds for a request to arrive whole, for an idle connection to stay, and for a client to take
# its answer.
TIMEOUT = 10
# Seconds for requests under way to come to their end when the agent stops.
GRACE = 1


class LocalServer(Server):
    """Serves ``application`` on a listening socket.

    A thread gets a connection when a whole request is there, so that no number of slow clients
    keeps it from others. Of more than ``MAX_WAITING`` connections the one that is waited for
    longest is closed.
    """

    def __init__(
        self,
        listening: socket.socket,
        application: Any,
        workers: int = WORKERS,
        connections: type[LocalConnection] = LocalConnection,
    ) -> None:
        super().__init__(
            "",
            application,
            server_name=NAME,
            timeout=TIMEOUT,
            shutdown_timeout=GRACE,
            request_queue_size=BACKLOG,
        )
        self.requests = WorkerThreads(self, workers, MAX_QUEUED)
        self.ConnectionClass, self.gateway = connections, Gateway
        self.max_request_header_size, self.max_request_body_size = MAX_HEAD, MAX_BODY
        self.keep_alive_conn_limit = MAX_WAITING
        self._listening = listening
        # In the order in which they began to be waited for.
        self._waiting: dict[LocalConnection, None] = {}
        self._changes = threading.Lock()
        self._arrived: dict[LocalConnection, int] = {}
        self._sender = Sender(TIMEOUT)

    def bind_unix_socket(self, _address: str) -> None:
        """Take the socket, which has its address and its rights already."""
        self.socket = self._listening

    def process_conn(self, conn: LocalConnection) -> None:
        """Something has come: a connection, or something on one."""
        try:
            alive = conn.rfile.receive()
            if conn.rfile.has_data():
                self._take(conn)
            elif alive:
                self.put_conn(conn)
            else:
                conn.close()
        except Exception:
            # Else nobody would know the connection any more, and its client wait.
            LOG.exception("a connection")
            conn.close()

    def _take(self, conn: LocalConnection) -> None:
        """Hand the connection to a thread, if there is room for what has arrived on it."""
        with self._changes:
            self._waiting.pop(conn, None)
            fits = self._fits(conn)
        try:
            if fits:
                self.requests.put(conn)
        except queue.Full:
            fits = False
        if not fits:
            self._refuse(conn)

    def _fits(self, conn: LocalConnection) -> bool:
        """Whether there is room for what has arrived on the connection. There always is for what is
        small, such as claims and health.
        """
        self._arrived[conn] = conn.rfile.size
        return conn.rfile.size <= MAX_HEAD or sum(self._arrived.values()) <= MOST_ARRIVED

    def _refuse(self, conn: LocalConnection) -> None:
        with suppress(OSError):
            Request(self, conn).simple_response(
                "503 Service Unavailable", "more has arrived than can be answered at once"
            )
        conn.close()

    def put_conn(self, conn: LocalConnection) -> None:
        """Wait for more on the connection, once the client has its answer.

        Never raises, because that would end the thread that served it, and the server with it.
        """
        try:
            self._wait_for(conn)
        except Exception:
            LOG.exception("a connection")
            conn.close()

    def _wait_for(self, conn: LocalConnection) -> None:
        if conn.wfile.left:
            self.send_to(conn, lambda: self.put_conn(conn))
            return
        surplus = None
        with self._changes:
            fits = self._fits(conn)
            if fits:
                self._waiting.setdefault(conn)
            if len(self._waiting) > MAX_WAITING:
                surplus = next(iter(self._waiting))
                del self._waiting[surplus]
        if surplus is not None:
            # Seen as the end of what it sends, and closed like any other.
            with suppress(OSError):
                surplus.socket.shutdown(socket.SHUT_RDWR)
        if not fits:
            self._refuse(conn)
            return
        try:
            super().put_conn(conn)
        except ValueError:
            # Nobody is waited for any more: the agent has stopped meanwhile.
            conn.close()

    def send_to(self, conn: LocalConnection, then: Callable[[], None]) -> None:
        """Send to the connection what its client has not taken yet, and then go on; no thread waits
        for that.
        """
        self._sender.take(conn, then)

    def forget(self, conn: LocalConnection) -> None:
        """The connection is over."""
        with self._changes:
            self._waiting.pop(conn, None)
            self._arrived.pop(conn, None)

    def stop(self) -> None:
        """Take no more, and send no more than what is sent in a moment."""
        self._sender.stop(GRACE)
        super().stop()

    def _serve_unservicable(self) -> None:
        """Refuse the connections for which there is no room, one after the other, whatever becomes
        of one of them.
        """
        while self.ready:
            conn = self._unservicable_conns.get()  # type: ignore[attr-defined]
            if not isinstance(conn, LocalConnection):
                return
            try:
                conn.RequestHandlerClass(self, conn).simple_response("503 Service Unavailable")
            except Exception as error:  # noqa: BLE001
                LOG.debug("a connection could not be refused: %r", error)
            conn.close()

    def error_log(self, msg: str = "", level: int = logging.INFO, traceback: bool = False) -> None:
        """To the agent's log."""
        LOG.log(level, "%s", msg, exc_info=traceback)
