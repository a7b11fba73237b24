"""The running API: its socket; a second one for metrics and health alone, which requests cannot
keep waiting; and the same over TCP, for clients that cannot reach a socket.
"""

import logging
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import falcon
from oslo_config import cfg

from agent.api.access import Access, group_id
from agent.api.application import (
    Authorizer,
    RequestLog,
    add_routes,
    application,
    handle_errors,
    health_routes,
)
from agent.api.metrics import Metrics, NodeFigures
from agent.api.problem import ListenerUnusable
from agent.api.server import GRACE, WORKERS, LocalServer
from agent.api.service import Service
from agent.api.socket_file import (
    METRICS_OPTION,
    Address,
    SocketFile,
    health_socket,
    metrics_address,
)
from agent.model.names import printable

LOG = logging.getLogger(__name__)

# More waiting requests would leave too few threads for all others.
WAITERS = WORKERS // 2
STORE_USERS = WORKERS - 2
# Threads; few clients read metrics.
METRICS_WORKERS = 2
BACKLOG = 64


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
            self.listening.listen(BACKLOG)
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
    """The local API, open from :meth:`start` to :meth:`stop`. ``metrics``: shown to Prometheus."""

    def __init__(self, conf: cfg.ConfigOpts, service: Service) -> None:
        self.metrics = Metrics()
        self.metrics.add(NodeFigures(service))
        self._access = Access.from_options(conf)
        path, group = Path(conf.api.socket), group_id(conf, "group")
        address = metrics_address(conf)
        authorizer = Authorizer(lambda: self._access)
        self._path, self._ends = path, False
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

    def start(self) -> None:
        """Open the sockets and serve the API.

        :raises SocketUnusable, ListenerUnusable: one of them cannot be opened.
        """
        for listener in self.listeners:
            listener.start()
        LOG.info("the local API listens on %s", printable(str(self._path)))

    def allow(self, access: Access) -> None:
        """Apply these rights from now on."""
        self._access = access

    def stop(self) -> None:
        """Accept no more requests, and give those under way a moment to end. Returns at once."""
        if not self._ends:
            self._ends = True
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
