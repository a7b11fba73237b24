"""The API's server: waitress on a listening socket. It reads requests and sends answers in one
thread, so that slow clients hold no worker thread.
"""

import json
import logging
import math
import resource
import socket
import time
from contextlib import suppress
from typing import Any

from waitress import wasyncore
from waitress.channel import HTTPChannel
from waitress.server import BaseWSGIServer
from waitress.task import ErrorTask, WSGITask

from agent.api.access import PEER, peer_of
from agent.api.problem import MEDIA_TYPE, phrase, plain, refusal
from agent.deadline import within

LOG = logging.getLogger(__name__)

NAME = "compute-node-agent"
WORKERS = 8
"""Threads."""
BACKLOG = 512
MAX_HEAD = 32 * 1024
"""Bytes."""
MAX_RECEIVED = 8 * 1024 * 1024
"""Bytes of a body that are received. A client whose body is too large for a request has the answer
only if its body was received, because most clients read no answer before.
"""
MAX_IN_MEMORY = 64 * 1024
"""Bytes of a body; a longer one is kept in a temporary file until it is whole."""
NEVER = 2**40
TIMEOUT = 10
"""Seconds in which a client has to send something, or to take something of its answer."""
ANSWER_SECONDS = 20.0
"""A request that is not done by then is answered 503 or 504, before clients give up. Waiting for an
audit or a reload is not limited.
"""
CLEANING_INTERVAL = 1.0
"""Seconds."""
GRACE = 1
"""Seconds for requests under way to end when the agent stops."""
MOST_CONNECTIONS = 256
FEWEST_CONNECTIONS = 16
KEPT_DESCRIPTORS = 256
"""For the store, libvirt, Placement and the log."""
PAUSE = 0.5
"""Seconds in which no connection is accepted after one could not be."""
TOLD_AGAIN = 60.0
"""Seconds until that is logged again."""


def connection_limit() -> int:
    """Return how many connections a server has, so that descriptors are left for all else."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(FEWEST_CONNECTIONS, min(MOST_CONNECTIONS, most - KEPT_DESCRIPTORS))


class _Task(WSGITask):
    """A request with its peer, whose answer has a deadline."""

    def get_environment(self) -> dict[str, Any]:
        return {**super().get_environment(), PEER: self.channel.peer}

    def execute(self) -> None:
        try:
            with within(ANSWER_SECONDS):
                super().execute()
        except (KeyboardInterrupt, SystemExit) as error:
            # waitress answers no request that one of these ends.
            raise RuntimeError(repr(error)) from error


class _Refusal(ErrorTask):
    """Refuses what is no request, or too large, with a problem document."""

    def execute(self) -> None:
        code, remedy = refusal(self.request.error.code)
        problem = plain(code, self.request.error.body, remedy)
        body = json.dumps(problem).encode()
        self.status, self.content_length = phrase(problem["status"]), len(body)
        self.response_headers.append(("Content-Type", MEDIA_TYPE))
        self.set_close_on_finish()
        self.write(body)


class _Connection(HTTPChannel):
    """A connection with its peer."""

    task_class = _Task
    error_task_class = _Refusal

    def __init__(
        self, server: Any, sock: socket.socket, address: Any, settings: Any, map: Any = None
    ) -> None:
        # First, because waitress knows the connection from then on.
        self.peer = (
            peer_of(sock) if sock.family == socket.AF_UNIX else f"{address[0]} port {address[1]}"
        )
        super().__init__(server, sock, address, settings, map=map)

    def service(self) -> None:
        """Answer a request.

        Requests behind it that were sent before its answer are dropped, and the connection is
        closed: no client needs that, and their answers would have to be kept for a client that
        reads none of them.
        """
        with self.requests_lock:
            if len(self.requests) > 1:
                self.requests[0].headers["CONNECTION"] = "close"
                for request in self.requests[1:]:
                    request.close()
                del self.requests[1:]
        super().service()


class LocalServer(BaseWSGIServer):
    """Serves ``application`` on a listening socket, in :meth:`run` and in ``threads`` threads.

    Where there are too many connections, or no descriptor is left, the eldest connection without a
    request gives way.
    """

    channel_class = _Connection

    def __init__(self, listening: socket.socket, application: Any, threads: int = WORKERS) -> None:
        self._most = connection_limit()
        self._accepts_from = self._told_at = -math.inf
        self._ends_at: float | None = None
        self._cleans_at, self._not_accepted = 0.0, ""
        # Its warning of each request that waits for a thread would fill the log.
        logging.getLogger("waitress.queue").setLevel(logging.ERROR)
        super().__init__(
            application,
            _sock=listening,
            bind_socket=False,
            sockinfo=(listening.family, listening.type, listening.proto, None),
            ident=NAME,
            server_name=NAME,
            threads=threads,
            backlog=BACKLOG,
            max_request_header_size=MAX_HEAD,
            max_request_body_size=MAX_RECEIVED,
            inbuf_overflow=MAX_IN_MEMORY,
            # No thread waits until a client has taken its answer.
            outbuf_high_watermark=NEVER,
            clear_untrusted_proxy_headers=False,
            log_socket_errors=False,
        )

    def getsockname(self) -> tuple[str, int]:
        """Return what requests are told of the server's address."""
        return NAME, 0

    def fix_addr(self, addr: Any) -> Any:
        """Return a client's address; one of a Unix socket has none."""
        return addr if isinstance(addr, tuple) else ("localhost", 0)

    def run(self) -> None:
        """Serve until :meth:`stop`."""
        try:
            while not self._is_over():
                self._serve_once()
        finally:
            self.task_dispatcher.shutdown(timeout=GRACE)
            wasyncore.close_all(self._map, ignore_all=True)

    def stop(self) -> None:
        """Accept no more connections, and give requests under way ``GRACE`` seconds to end."""
        self._ends_at = time.monotonic() + GRACE
        self.accepting = False
        with suppress(OSError):
            self.pull_trigger()

    def _serve_once(self) -> None:
        try:
            # Between two rounds of the loop, because a connection that is accepted within a round
            # can get the descriptor of one that was closed in it, and its events.
            self._tidy()
            wasyncore.loop(timeout=1, use_poll=True, map=self._map, count=1)
        except Exception:
            LOG.exception("the server of the local API goes on")
            time.sleep(PAUSE)

    def _tidy(self) -> None:
        """Close silent connections from time to time, and make room for new ones if there is
        none.
        """
        now = time.time()
        if now >= self._cleans_at:
            self._cleans_at = now + CLEANING_INTERVAL
            self.maintenance(now)
        reason, self._not_accepted = self._not_accepted, ""
        if reason and not self._end_eldest():
            self._pause(reason)

    def _is_over(self) -> bool:
        if self._ends_at is None:
            return False
        open_ones = list(self.active_channels.values())
        return time.monotonic() >= self._ends_at or not any(
            one.requests or one.total_outbufs_len for one in open_ones
        )

    # --- called by waitress's loop ----------------------------------------------------------------

    def readable(self) -> bool:
        """Return whether connections are accepted now."""
        return self.accepting and time.monotonic() >= self._accepts_from

    def maintenance(self, now: float) -> None:
        """Close the connections whose clients do nothing for ``TIMEOUT`` seconds."""
        for connection in list(self.active_channels.values()):
            if not connection.requests and connection.last_activity < now - TIMEOUT:
                # At once: waitress would wait until the client takes something.
                connection.handle_close()

    def accept(self) -> Any:
        """Accept a connection; None if there is none, or none can be accepted."""
        if len(self.active_channels) >= self._most:
            self._not_accepted = "too many requests are under way"
            return None
        try:
            return super().accept()
        except OSError as error:
            self._not_accepted = str(error.strerror)
            return None

    def handle_error(self) -> None:
        """Go on after an exception, where waitress would close the listening socket."""
        LOG.exception("a connection")

    def _pause(self, reason: str) -> None:
        """Accept none for a while, because the loop would spin."""
        self._accepts_from = time.monotonic() + PAUSE
        if time.monotonic() - self._told_at >= TOLD_AGAIN:
            self._told_at = time.monotonic()
            LOG.warning(
                "no connection can be accepted (%s); raise LimitNOFILE of the service, or see who "
                "holds so many connections",
                reason,
            )

    def _end_eldest(self) -> bool:
        """Close the eldest connection without a whole request; return whether there was one."""
        for connection in list(self.active_channels.values()):
            if not connection.requests:
                connection.handle_close()
                return True
        return False
