"""The API's server: cheroot on a Unix socket, behind buffers that slow clients cannot block, and
behind queues in which requests for health do not wait for others, nor small requests for large
ones, nor new connections for those that pipeline requests.
"""

import errno
import logging
import math
import queue
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from threading import Condition, get_ident
from typing import Any, Literal

from cheroot.workers.threadpool import ThreadPool
from cheroot.wsgi import Server

from agent.api.connection import Gateway, LocalConnection, Request
from agent.api.receive_buffer import MAX_BODY, MAX_HEAD, ReceiveBuffer
from agent.api.send_buffer import Sender

LOG = logging.getLogger(__name__)

Lane = Literal["health", "small", "large"]

# In bytes. A longer request takes so much memory and time that one is served at once: reading two
# holds the interpreter lock for twice as long before an answer about health.
LARGE = 64 * 1024
LARGE_AT_ONCE = 1
HEALTH_AT_ONCE = 2
# In seconds.
PIPELINED_PAUSE = 0.02
HEALTH = (b"GET /healthz ", b"GET /readyz ")


def queue_of(inbox: ReceiveBuffer) -> Lane:
    """Return the lane of the request that the buffer begins with."""
    if inbox.begins_with(HEALTH):
        return "health"
    return "large" if inbox.size > LARGE else "small"


class RequestQueues:
    """The queues of connections with whole requests, for ``threads`` + 1 threads. At most
    ``threads`` of them serve anything but health, so that one is always left for health.

    A pipelined request, sent before the last one on its connection was answered, is served when
    nothing else waits and no connection was opened for ``PIPELINED_PAUSE`` seconds, because a new
    connection has to wait for the interpreter lock; and one of them whenever so much time has
    passed, so that all are served in the end.

    At most ``most`` connections wait with requests for health, as many with pipelined requests, and
    as many with others.
    """

    def __init__(
        self, threads: int, most: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._threads, self._most, self._clock = threads, most, clock
        self._changed = Condition()
        self._health = deque[tuple[Lane, Any]]()
        self._others = deque[tuple[Lane, Any]]()
        self._pipelined = deque[tuple[Lane, Any]]()
        # Times of ``clock``: of the last new connection, and when a pipelined request is served
        # whatever else waits.
        self._opened = self._turn = -math.inf
        # The lane that each thread serves, and how many threads serve each lane.
        self._serves: dict[int, Lane] = {}
        self._served: Counter[Lane] = Counter()
        self._ends: deque[Any] = deque()

    def note_opened(self) -> None:
        """Note that a connection was opened."""
        self._opened = self._clock()

    def put(self, connection: Any, **_waiting: Any) -> None:
        """Queue a connection.

        :raises queue.Full: too many connections wait.
        """
        with self._changed:
            if not hasattr(connection, "rfile"):
                # cheroot's sign for a thread to end.
                self._ends.append(connection)
            else:
                lane = queue_of(connection.rfile)
                waiting = self._health if lane == "health" else self._others
                if connection.pipelines:
                    waiting = self._pipelined
                    if not waiting:
                        self._turn = max(self._turn, self._clock() + PIPELINED_PAUSE)
                if len(waiting) >= self._most:
                    raise queue.Full
                waiting.append((lane, connection))
            self._changed.notify()

    def get(self) -> Any:
        """Return the connection that the calling thread is to serve next; its last one is done."""
        with self._changed:
            done = self._serves.pop(get_ident(), None)
            if done is not None:
                self._served[done] -= 1
            while (found := self._next()) is None:
                if self._ends:
                    return self._ends.popleft()
                self._changed.wait(PIPELINED_PAUSE if self._pipelined else None)
            lane, connection = found
            self._serves[get_ident()] = lane
            self._served[lane] += 1
            if self._health or self._others or self._pipelined:
                # Connections that had to wait for a free place may be served now.
                self._changed.notify()
            return connection

    def _next(self) -> tuple[Lane, Any] | None:
        now = self._clock()
        if now >= self._turn and (found := self._take(self._pipelined)) is not None:
            self._turn = now + PIPELINED_PAUSE
            return found
        found = self._take(self._health) or self._take(self._others)
        if found is None and (self._ends or now >= self._opened + PIPELINED_PAUSE):
            found = self._take(self._pipelined)
        return found

    def _take(self, waiting: deque[tuple[Lane, Any]]) -> tuple[Lane, Any] | None:
        """Take the first of ``waiting`` for whose lane there is a thread."""
        for found in waiting:
            if self._has_place(found[0]):
                waiting.remove(found)
                return found
        return None

    def _has_place(self, lane: Lane) -> bool:
        if lane == "health":
            return self._served[lane] < HEALTH_AT_ONCE
        others = self._served["small"] + self._served["large"]
        return others < self._threads and (lane == "small" or self._served[lane] < LARGE_AT_ONCE)


class WorkerThreads(ThreadPool):
    """cheroot's thread pool, with :class:`RequestQueues` in place of its queue."""

    def __init__(self, server: Any, threads: int, most: int) -> None:
        super().__init__(server, min=threads + 1, max=threads + 1)
        self.queues = self._queue = RequestQueues(threads, most)
        self.get = self.queues.get


NAME = "compute-node-agent"
# Threads; one more is for health alone.
WORKERS = 8
# Connections without a whole request, and connections whose request waits for a thread.
MAX_WAITING = 128
MAX_QUEUED = 128
BACKLOG = 512
# In bytes: what has arrived on all connections and was not answered.
MOST_ARRIVED = 12 * 1024 * 1024
# In seconds: for a request to arrive whole, for an idle connection to stay, and for a client to
# take its answer.
TIMEOUT = 10
# In seconds: for requests under way to end when the agent stops.
GRACE = 1


# Seconds without new connections after none could be accepted for want of descriptors or memory,
# and there was no idle one to close; and seconds until that is logged again.
ACCEPT_PAUSE = 0.1
TOLD_AGAIN = 60.0
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class _Listening:
    """A listening socket of a process that may have no descriptors left: then the eldest idle
    connection gives way, and without one the socket waits instead of spinning.

    ``give_way`` ends the eldest idle connection, and returns whether there was one.
    """

    def __init__(self, listening: socket.socket, give_way: Callable[[], bool]) -> None:
        self._socket, self._give_way = listening, give_way
        self._told_at = -math.inf

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection.

        :raises BlockingIOError: none can be accepted now, which the server's loop ignores.
        """
        try:
            return self._socket.accept()
        except OSError as error:
            if error.errno not in EXHAUSTED:
                raise
            if time.monotonic() - self._told_at >= TOLD_AGAIN:
                self._told_at = time.monotonic()
                LOG.warning(
                    "no connection can be accepted (%s); raise LimitNOFILE of the service, or see "
                    "who holds so many connections",
                    error.strerror,
                )
            if not self._give_way():
                time.sleep(ACCEPT_PAUSE)
            raise BlockingIOError(errno.EAGAIN, "no connection can be accepted") from error


class LocalServer(Server):
    """Serves ``application`` on a listening socket.

    A thread gets a connection when a whole request is there, so that slow clients cannot keep it
    from others. Of more than ``MAX_WAITING`` connections without a whole request, the oldest is
    closed.
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
        # In the order in which the server began to wait for them.
        self._waiting: dict[LocalConnection, None] = {}
        self._changes = threading.Lock()
        self._arrived: dict[LocalConnection, int] = {}
        self._sender = Sender(TIMEOUT)

    def bind_unix_socket(self, _address: str) -> None:
        """Use the listening socket, whose file has its address and its rights already."""
        self.socket = _Listening(self._listening, lambda: self._end_eldest(0))

    def process_conn(self, conn: LocalConnection) -> None:
        """Receive from a connection that is new or on which bytes have arrived."""
        if conn not in self._arrived:
            self.requests.queues.note_opened()
        try:
            alive = conn.rfile.receive()
            if conn.rfile.has_data():
                self._take(conn)
            elif alive:
                self.put_conn(conn)
            else:
                conn.close()
        except Exception:
            # Otherwise no part of the server would know the connection, and its client would wait.
            LOG.exception("a connection")
            conn.close()

    def _take(self, conn: LocalConnection) -> None:
        """Queue a connection for a thread, if there is room for what has arrived on it; else refuse
        it.
        """
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
        """Return whether there is room for what has arrived on the connection. There always is for
        a request of up to ``MAX_HEAD`` bytes, such as claims and health.
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
        """Wait for the next request on the connection, once its client has taken the answer.

        Never raises, because that would end the worker thread, and the server with it.
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
        conn.pipelines = conn.rfile.has_data()
        with self._changes:
            fits = self._fits(conn)
            if fits:
                self._waiting.setdefault(conn)
        self._end_eldest(MAX_WAITING)
        if not fits:
            self._refuse(conn)
            return
        try:
            super().put_conn(conn)
        except ValueError:
            # The server has stopped meanwhile, and waits for no connection.
            conn.close()

    def _end_eldest(self, most: int) -> bool:
        """End the eldest of the connections without a whole request, if there are more than
        ``most``. Return whether there were.
        """
        with self._changes:
            if len(self._waiting) <= most:
                return False
            eldest = next(iter(self._waiting))
            del self._waiting[eldest]
        # The server sees the end of the client's data, and closes the connection like any other.
        with suppress(OSError):
            eldest.socket.shutdown(socket.SHUT_RDWR)
        return True

    def send_to(self, conn: LocalConnection, then: Callable[[], None]) -> None:
        """Send what the client has not taken yet, then call ``then``; no worker thread waits for
        that.
        """
        self._sender.take(conn, then)

    def forget(self, conn: LocalConnection) -> None:
        """Drop the connection from all lists."""
        with self._changes:
            self._waiting.pop(conn, None)
            self._arrived.pop(conn, None)

    def stop(self) -> None:
        """Accept no more requests, and limit the time for the rests of answers to ``GRACE``."""
        self._sender.stop(GRACE)
        super().stop()

    def _serve_unservicable(self) -> None:
        """Refuse the connections that cheroot has no room for, one after the other; an error with
        one does not stop the others.
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
        """Log cheroot's messages to the agent's log."""
        LOG.log(level, "%s", msg, exc_info=traceback)
