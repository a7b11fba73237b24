"""A TCP listener for metrics and health alone, for clients that cannot reach the socket. It serves
every client.
"""

import socket
from typing import Any

import falcon

from agent.api.address import METRICS_OPTION, Address
from agent.api.application import RequestLog, handle_errors
from agent.api.connection import LocalConnection
from agent.api.errors import ListenerUnusable
from agent.api.metrics import Metrics
from agent.api.resources.state import HealthResource, MetricsResource, ReadinessResource
from agent.api.server import LocalServer
from agent.api.service import Service

# Threads; few clients read metrics.
WORKERS = 2
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
        workers=WORKERS,
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
