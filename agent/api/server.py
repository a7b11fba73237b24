"""The API's server: cheroot on a Unix socket, in front of it a queue that slow clients cannot block."""

import logging
import socket
import threading
from contextlib import suppress
from typing import Any

from cheroot.wsgi import Server

from agent.api.connection import Connection, Gateway
from agent.api.inbox import MAX_BODY, MAX_HEAD

LOG = logging.getLogger(__name__)

NAME = "compute-node-agent"
WORKERS = 8
# Connections on which no whole request has come yet, and those whose request waits for a thread.
MAX_WAITING = 128
MAX_QUEUED = 128
BACKLOG = 512
# Seconds for a request to arrive whole, for an idle connection to stay, and for a client to take its answer.
TIMEOUT = 10
# Seconds for requests under way to come to their end when the agent stops.
GRACE = 1


class LocalServer(Server):
    """Serves ``application`` on a listening socket.

    A thread gets a connection when a whole request is there, so that no number of slow clients keeps it from others. Of more
    than ``MAX_WAITING`` connections the one that is waited for longest is closed.
    """

    def __init__(self, listening: socket.socket, application: Any) -> None:
        super().__init__(
            "", application, numthreads=WORKERS, max=WORKERS, server_name=NAME, timeout=TIMEOUT, shutdown_timeout=GRACE,
            request_queue_size=BACKLOG, accepted_queue_size=MAX_QUEUED, accepted_queue_timeout=0,
        )  # fmt: skip
        self.ConnectionClass, self.gateway = Connection, Gateway
        self.max_request_header_size, self.max_request_body_size = MAX_HEAD, MAX_BODY
        self.keep_alive_conn_limit = MAX_WAITING
        self._listening = listening
        # In the order in which they began to be waited for.
        self._waiting: dict[Connection, None] = {}
        self._changes = threading.Lock()

    def bind_unix_socket(self, _address: str) -> None:
        """Take the socket, which has its address and its rights already."""
        self.socket = self._listening

    def process_conn(self, conn: Connection) -> None:
        """Something has come: a connection, or something on one."""
        alive = conn.rfile.receive()
        if conn.rfile.has_data():
            self.forget(conn)
            super().process_conn(conn)
        elif alive:
            self.put_conn(conn)
        else:
            conn.close()

    def put_conn(self, conn: Connection) -> None:
        """Wait for more on the connection."""
        with self._changes:
            self._waiting.setdefault(conn)
            surplus = next(iter(self._waiting)) if len(self._waiting) > MAX_WAITING else None
        if surplus is not None:
            # Seen as the end of what it sends, and closed like any other.
            with suppress(OSError):
                surplus.socket.shutdown(socket.SHUT_RDWR)
        super().put_conn(conn)

    def forget(self, conn: Connection) -> None:
        """The connection is not waited for any more."""
        with self._changes:
            self._waiting.pop(conn, None)

    def error_log(self, msg: str = "", level: int = logging.INFO, traceback: bool = False) -> None:
        """To the agent's log."""
        LOG.log(level, "%s", msg, exc_info=traceback)
