"""The running API: its socket; a second one for metrics and health alone, which requests cannot
keep waiting; and the same over TCP, for clients that cannot reach a socket. The server
is waitress: it reads requests and sends answers in one thread, so that slow clients hold no worker
thread.
"""

import json
import logging
import math
import resource
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import falcon
from oslo_config import cfg
from waitress import wasyncore
from waitress.channel import HTTPChannel
from waitress.server import BaseWSGIServer
from waitress.task import ErrorTask, WSGITask

from agent.api.access import PEER, Access, group_id, peer_of
from agent.api.application import (
    Authorizer,
    RequestLog,
    add_routes,
    application,
    handle_errors,
    health_routes,
)
from agent.api.metrics import Metrics, NodeFigures
from agent.api.problem import MEDIA_TYPE, ListenerUnusable, phrase, plain, refusal
from agent.api.service import Service
from agent.api.socket_file import (
    METRICS_OPTION,
    Address,
    SocketFile,
    health_socket,
    metrics_address,
)
from agent.deadline import within
from agent.model.names import printable

NAME = "compute-node-agent"
WORKERS = 8
"""Threads."""
CONNECTION_BACKLOG = 512
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
            backlog=CONNECTION_BACKLOG,
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


LOG = logging.getLogger(__name__)

# More waiting requests would leave too few threads for all others.
WAITERS = WORKERS // 2
STORE_USERS = WORKERS - 2
# Threads; few clients read metrics.
METRICS_WORKERS = 2
METRICS_BACKLOG = 64


class _TcpSocket:
    """A listening TCP socket.

    :raises ListenerUnusable: the agent cannot listen at the address.
    """

    def __init__(self, address: Address) -> None:
        host, port = address
        family, where = (
            (socket.AF_INET6, f"[{host}]:{port}")
            if ":" in host
            else (socket.AF_INET, f"{host}:{port}")
        )
        self.listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            self.listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.listening.bind(address)
            self.listening.listen(METRICS_BACKLOG)
        except OSError as error:
            self.listening.close()
            raise ListenerUnusable(
                f"{METRICS_OPTION} = {where}: the agent cannot listen there: {error.strerror}",
                "give an address of this host and a free port, or remove it",
            ) from error

    def remove(self) -> None:
        """Do nothing: the server closes the socket."""


class _Listener:
    """A server of ``application`` in a thread of its own. ``open_socket`` makes its socket."""

    def __init__(
        self,
        name: str,
        open_socket: Callable[[], SocketFile | _TcpSocket],
        application: Any,
        threads: int,
    ) -> None:
        self._name, self._open, self._application = name, open_socket, application
        self._threads = threads
        self._socket: SocketFile | _TcpSocket | None = None
        self.server: LocalServer | None = None
        self.serving: Thread | None = None

    def start(self) -> None:
        """Open the socket and serve.

        :raises SocketUnusable, ListenerUnusable: the socket cannot be opened.
        """
        self._socket = self._open()
        self.server = LocalServer(self._socket.listening, self._application, self._threads)
        self.serving = Thread(target=self.server.run, name=self._name, daemon=True)
        self.serving.start()

    def stop(self) -> None:
        """Begin to end."""
        if self.server is not None and self._socket is not None:
            # First, so that no client finds a socket at which nothing listens.
            self._socket.remove()
            self.server.stop()

    def wait(self) -> None:
        """Wait for the end, for a limited time."""
        if self.serving is not None:
            self.serving.join(2 * GRACE)


class LocalApi:
    """The local API, open from :meth:`start` to :meth:`stop` where ``[api] socket`` is set."""

    def __init__(self, conf: cfg.ConfigOpts, service: Service) -> None:
        self._conf, self._service = conf, service
        self.metrics = Metrics()
        """Shown to Prometheus."""
        self.metrics.add(NodeFigures(service))
        self.listeners: list[_Listener] = []
        self._ends = False

    def start(self) -> None:
        """Open the sockets and serve the API.

        :raises ConfigErrors: the rights or the address for metrics cannot be used.
        :raises SocketUnusable, ListenerUnusable: a socket cannot be opened.
        """
        conf, service = self._conf, self._service
        if not conf.api.socket:
            return
        self._access = Access.from_options(conf)
        path, group = Path(conf.api.socket), group_id(conf, "group")
        address = metrics_address(conf)
        authorizer = Authorizer(lambda: self._access)
        self.listeners = [
            _Listener(
                "api",
                partial(SocketFile, path, group),
                application(service, lambda: self._access, self.metrics, WAITERS, STORE_USERS),
                WORKERS,
            ),
            _Listener(
                "health",
                partial(SocketFile, health_socket(path), group),
                _figures(service, self.metrics, authorizer),
                METRICS_WORKERS,
            ),
        ]
        if address is not None:
            app = _figures(service, self.metrics)
            self.listeners.append(
                _Listener("figures", partial(_TcpSocket, address), app, METRICS_WORKERS)
            )
            LOG.info("metrics and health are served at %s port %d", *address)
        for listener in self.listeners:
            listener.start()
        if self._ends:
            # The daemon was told to end meanwhile.
            self._stop_listeners()
        LOG.info("the local API listens on %s", printable(str(path)))

    def allow(self, access: Access) -> None:
        """Apply these rights from now on."""
        self._access = access

    def stop(self) -> None:
        """Accept no more requests, and give those under way a moment to end. Returns at once."""
        if not self._ends:
            self._ends = True
            self._stop_listeners()

    def _stop_listeners(self) -> None:
        for listener in self.listeners:
            listener.stop()

    def wait(self) -> None:
        """Wait for the end that :meth:`stop` began, for a limited time."""
        if self._ends:
            for listener in self.listeners:
                listener.wait()


def _figures(service: Service, metrics: Metrics, *middleware: Authorizer) -> "falcon.App[Any, Any]":
    """Return the application of metrics and health alone."""
    app: falcon.App[Any, Any] = falcon.App(middleware=[RequestLog(metrics), *middleware])
    handle_errors(app)
    add_routes(app, health_routes(service, metrics))
    return app
