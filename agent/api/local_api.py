"""The running API: its socket, its server, and a TCP listener for metrics and health alone, for
clients that cannot reach the socket.
"""

import logging
import socket
from pathlib import Path
from threading import Thread
from typing import Any

import falcon
from oslo_config import cfg

from agent.api.access import Access, group_id
from agent.api.application import RequestLog, application, handle_errors
from agent.api.connection import LocalConnection
from agent.api.metrics import Metrics
from agent.api.node_figures import NodeFigures
from agent.api.problem import ListenerUnusable
from agent.api.resources.state import HealthResource, MetricsResource, ReadinessResource
from agent.api.server import GRACE, WORKERS, LocalServer
from agent.api.service import Service
from agent.api.socket_file import METRICS_OPTION, Address, SocketFile, metrics_address
from agent.model.names import printable

LOG = logging.getLogger(__name__)

# More waiting requests would leave too few threads for all others.
WAITERS = WORKERS // 2
STORE_USERS = WORKERS - 2


class LocalApi:
    """The local API, open from :meth:`start` to :meth:`stop`. ``metrics``: shown to Prometheus."""

    def __init__(self, conf: cfg.ConfigOpts, service: Service) -> None:
        self.metrics = Metrics()
        self.metrics.add(NodeFigures(service))
        self._path, self._group = Path(conf.api.socket), group_id(conf, "group")
        self._access = Access.from_options(conf)
        self._application = application(
            service, lambda: self._access, self.metrics, WAITERS, STORE_USERS
        )
        self._service, self._address = service, metrics_address(conf)
        self._figures: LocalServer | None = None
        self._server: LocalServer | None = None
        self._file: SocketFile | None = None
        self._serving: Thread | None = None
        self._showing: Thread | None = None
        self._ending: Thread | None = None

    def start(self) -> None:
        """Open the socket and serve the API in a thread.

        :raises SocketUnusable: the socket cannot be opened.
        """
        self._file = SocketFile(self._path, self._group)
        self._server = LocalServer(self._file.listening, self._application)
        self._server.prepare()
        self._serving = Thread(target=self._server.serve, name="api", daemon=True)
        self._serving.start()
        LOG.info("the local API listens on %s", printable(str(self._path)))

    def start_figures(self) -> None:
        """Serve metrics and health at ``[api] metrics_address``, if it is set.

        :raises ListenerUnusable: the agent cannot listen there.
        """
        if self._address is not None:
            self._figures = metrics_server(self._address, self._service, self.metrics)
            self._figures.prepare()
            self._showing = Thread(target=self._figures.serve, name="figures", daemon=True)
            self._showing.start()
            LOG.info("metrics and health are served at %s port %d", *self._address)

    def keep_up(self) -> None:
        """Restart each server whose thread has ended; the thread has logged why.

        :raises SocketUnusable, ListenerUnusable: as :meth:`start` and :meth:`start_figures`.
        """
        if self._ending is not None:
            return
        if self._serving is not None and not self._serving.is_alive():
            LOG.error("the thread of the local API has ended; starting it again")
            if self._server is not None and self._file is not None:
                (file, self._file), (server, self._server) = (
                    (self._file, None),
                    (self._server, None),
                )
                file.remove()
                server.stop()
            self.start()
        if self._showing is not None and not self._showing.is_alive():
            LOG.error("the thread of the listener for metrics has ended; starting it again")
            if self._figures is not None:
                figures, self._figures = self._figures, None
                figures.stop()
            self.start_figures()

    def allow(self, access: Access) -> None:
        """Apply these rights from now on."""
        self._access = access

    def stop(self) -> None:
        """Accept no more requests, and give those under way a moment to end. Returns at once."""
        if self._ending is None and self._server is not None and self._file is not None:
            # First, so that no client finds a socket at which nothing listens.
            self._file.remove()
            self._ending = Thread(
                target=self._end, args=[self._server], name="api ends", daemon=True
            )
            self._ending.start()

    def _end(self, server: LocalServer) -> None:
        try:
            if self._figures is not None:
                self._figures.stop()
        finally:
            server.stop()

    def wait(self) -> None:
        """Wait for the end that :meth:`stop` began, for a limited time."""
        if self._ending is not None:
            self._ending.join(2 * GRACE)


# Threads; few clients read metrics.
METRICS_WORKERS = 2
BACKLOG = 64


class TcpConnection(LocalConnection):
    """A TCP connection."""

    @staticmethod
    def peer_of(connection: socket.socket) -> str:
        """Return the client's address as text."""
        host, port, *_ = connection.getpeername()
        return f"{host} port {port}"


def metrics_server(address: Address, service: Service, metrics: Metrics) -> LocalServer:
    """Return the server, listening but not serving yet.

    :raises ListenerUnusable: the agent cannot listen at the address.
    """
    return LocalServer(
        _listen(address),
        _application(service, metrics),
        workers=METRICS_WORKERS,
        connections=TcpConnection,
    )


def _listen(address: Address) -> socket.socket:
    listening = socket.socket(
        socket.AF_INET6 if ":" in address[0] else socket.AF_INET,
        socket.SOCK_STREAM | socket.SOCK_CLOEXEC,
    )
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        where = (
            f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"
        )
        raise ListenerUnusable(
            f"{METRICS_OPTION} = {where}: the agent cannot listen there: {error.strerror}",
            "give an address of this host and a free port, or remove it",
        ) from error
    return listening


def _application(service: Service, metrics: Metrics) -> "falcon.App[Any, Any]":
    app: falcon.App[Any, Any] = falcon.App(middleware=[RequestLog(metrics)])
    handle_errors(app)
    for path, resource in {
        "/metrics": MetricsResource(metrics),
        "/healthz": HealthResource(service),
        "/readyz": ReadinessResource(service),
    }.items():
        app.add_route(path, resource)
    return app
