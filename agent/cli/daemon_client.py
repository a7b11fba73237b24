"""The way from a command to the daemon, if one runs."""

import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

from oslo_config import cfg

from agent.api.body import decoded
from agent.api.client import ApiClient, ApiUnreachable
from agent.conf.api import SYSTEM_SOCKET, default_socket
from agent.errors import AgentError, ConfigError, ConfigErrors
from agent.model.names import printable

STDIN = "-"


class RequestUnreadable(AgentError):
    """The file with the request cannot be read, or holds no request."""

    code = "request.unreadable"


def request_in(file: str, client: ApiClient) -> dict[str, Any]:
    """The request in ``file``. One without an id gets one; one without a node is for the only one
    there is.

    :raises RequestUnreadable, NotJson: there is no request in it.
    :raises ApiProblem, ApiUnreachable: the agent does not say which nodes it has.
    """
    wanted = decoded(_content(file))
    if not isinstance(wanted, dict):
        raise RequestUnreadable(
            f"{_called(file)}: not a JSON object", "write it as the local API takes it"
        )
    wanted.setdefault("id", str(uuid.uuid4()))
    if "node" not in wanted:
        nodes = list(client.nodes())
        if len(nodes) != 1:
            raise RequestUnreadable(
                f"{_called(file)}: it has no node, and the agent has {len(nodes)} of them",
                "name one by its uuid, see agent status",
            )
        wanted["node"] = nodes[0]["uuid"]
    return wanted


def _content(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    except OSError as error:
        raise RequestUnreadable(
            f"{_called(file)}: {error.strerror or error}", "check the path"
        ) from error


def _called(file: str) -> str:
    return "stdin" if file == STDIN else printable(file)


Answer = TypeVar("Answer")
Document = Mapping[str, Any]


def client(conf: cfg.ConfigOpts) -> ApiClient:
    """A client of the daemon of ``conf``; whoever has none of their own gets the system's."""
    path = Path(conf.api.socket)
    return ApiClient(
        Path(SYSTEM_SOCKET) if str(path) == default_socket() and not path.exists() else path
    )


def chosen_nodes(nodes: Sequence[Document], wanted: Sequence[str]) -> Sequence[Document]:
    """Those of the daemon's nodes that ``--node`` names, by name, pattern or uuid; all if there is
    none.

    :raises ConfigErrors: one of them means nothing.
    """
    there = ", ".join(printable(node["name"]) for node in nodes[:10]) or "none yet"
    errors = [
        ConfigError(f"--node {printable(one)}: the daemon has no such node", f"it has {there}")
        for one in wanted
        if not any(_is_called(node, one) for node in nodes)
    ]
    if errors:
        raise ConfigErrors(errors)
    return [node for node in nodes if not wanted or any(_is_called(node, one) for one in wanted)]


def _is_called(node: Document, wanted: str) -> bool:
    return bool(node["uuid"] == wanted) or fnmatchcase(node["name"], wanted)


def from_daemon(conf: cfg.ConfigOpts, ask: Callable[[ApiClient], Answer]) -> Answer | None:
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
