"""The way from a command to the daemon, if one runs."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from oslo_config import cfg

from agent.api.client import ApiClient, ApiUnreachable
from agent.conf.service import SYSTEM_SOCKET, default_socket
from agent.errors import ConfigError, ConfigErrors
from agent.model.names import choose_nodes, name_first, printable

Answer = TypeVar("Answer")
Document = Mapping[str, Any]


def client(conf: cfg.ConfigOpts) -> ApiClient:
    """Return a client of the daemon of ``conf``. If the user's own default socket does not exist,
    it is the system's daemon.
    """
    path = Path(conf.api.socket)
    return ApiClient(
        Path(SYSTEM_SOCKET) if str(path) == default_socket() and not path.exists() else path
    )


def select_nodes(
    nodes: Sequence[Document], wanted: Sequence[str], place: str = "the daemon"
) -> Sequence[Document]:
    """Return the nodes that ``--node`` names, by name, pattern or uuid; all of them if it names
    none.

    :raises ConfigErrors: a name matches no node.
    """
    chosen, unmatched = choose_nodes(nodes, wanted, lambda node: (node["uuid"], node["name"]))
    if unmatched:
        there = name_first([printable(node["name"]) for node in nodes]) or "none yet"
        raise ConfigErrors(
            [
                ConfigError(
                    f"--node {printable(name)}: {place} has no such node", f"it has {there}"
                )
                for name in unmatched
            ]
        )
    return chosen


def from_daemon(conf: cfg.ConfigOpts, ask: Callable[[ApiClient], Answer]) -> Answer | None:
    """Return what ``ask`` gets from the daemon; None if none runs.

    :raises ApiProblem: the daemon refuses.
    :raises ApiUnreachable: the user may not connect, or the answer was lost.
    """
    if not conf.api.socket:
        return None
    try:
        return ask(client(conf))
    except ApiUnreachable as error:
        if error.data["listening"]:
            raise
        return None
