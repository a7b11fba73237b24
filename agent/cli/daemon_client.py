"""The way from a command to the daemon, if one runs."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from oslo_config import cfg

from agent.api.client import ApiUnreachable, Client
from agent.conf.api import SYSTEM_SOCKET, default_socket

Answer = TypeVar("Answer")


def client(conf: cfg.ConfigOpts) -> Client:
    """A client of the daemon of ``conf``; whoever has none of their own gets the system's."""
    path = Path(conf.api.socket)
    return Client(Path(SYSTEM_SOCKET) if str(path) == default_socket() and not path.exists() else path)


def from_daemon(conf: cfg.ConfigOpts, ask: Callable[[Client], Answer]) -> Answer | None:
    """What the daemon answers; None if none runs.

    :raises ApiProblem: it refuses.
    :raises ApiUnreachable: it may not be asked, or its answer got lost.
    """
    if not conf.api.socket:
        return None
    try:
        return ask(client(conf))
    except ApiUnreachable as error:
        if error.data["listening"]:
            raise
        return None
