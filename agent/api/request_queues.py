"""The queues of requests that wait for a thread: requests for health do not wait behind others,
small ones not behind large ones.
"""

import queue
from collections import Counter, deque
from threading import Condition, get_ident
from typing import Any, Literal

from cheroot.workers.threadpool import ThreadPool

from agent.api.receive_buffer import ReceiveBuffer

Lane = Literal["health", "small", "large"]

# In bytes. A longer request takes so much memory and time that few are served at once.
LARGE = 64 * 1024
LARGE_AT_ONCE = 2
HEALTH_AT_ONCE = 2
HEALTH = (b"GET /healthz ", b"GET /readyz ")


def queue_of(inbox: ReceiveBuffer) -> Lane:
    """Return the lane of the request that the buffer begins with."""
    if inbox.begins_with(HEALTH):
        return "health"
    return "large" if inbox.size > LARGE else "small"


class RequestQueues:
    """The queues of connections with whole requests, for ``threads`` + 1 threads. At most
    ``threads`` of them serve anything but health, so that one is always left for health.

    At most ``most`` connections wait in the lane of health, and as many in the others together.
    """

    def __init__(self, threads: int, most: int) -> None:
        self._threads, self._most = threads, most
        self._changed = Condition()
        self._waiting: dict[bool, deque[tuple[Lane, Any]]] = {True: deque(), False: deque()}
        # The lane that each thread serves, and how many threads serve each lane.
        self._serves: dict[int, Lane] = {}
        self._served: Counter[Lane] = Counter()
        self._ends: deque[Any] = deque()

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
                waiting = self._waiting[lane == "health"]
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
                self._changed.wait()
            lane, connection = found
            self._serves[get_ident()] = lane
            self._served[lane] += 1
            if any(self._waiting.values()):
                # Connections that had to wait for a free place may be served now.
                self._changed.notify()
            return connection

    def _next(self) -> tuple[Lane, Any] | None:
        health, others = self._waiting[True], self._waiting[False]
        if health and self._served["health"] < HEALTH_AT_ONCE:
            return health.popleft()
        if self._served["small"] + self._served["large"] >= self._threads:
            return None
        for waiting in others:
            if waiting[0] == "small" or self._served["large"] < LARGE_AT_ONCE:
                others.remove(waiting)
                return waiting
        return None


class WorkerThreads(ThreadPool):
    """cheroot's thread pool, with :class:`RequestQueues` in place of its queue."""

    def __init__(self, server: Any, threads: int, most: int) -> None:
        super().__init__(server, min=threads + 1, max=threads + 1)
        self._queue = RequestQueues(threads, most)
        self.get = self._queue.get
