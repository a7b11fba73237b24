"""The way from a command to the daemon, if one runs."""

import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from oslo_config import cfg

from agent.api.body import decode
from agent.api.client import ApiClient, ApiUnreachable
from agent.conf.api import SYSTEM_SOCKET, default_socket
from agent.errors import AgentError, ConfigError, ConfigErrors
from agent.model.names import choose_nodes, number_of, printable

STDIN = "-"


class RequestUnreadable(AgentError):
    """The file with the request cannot be read, or has no request.
    Remedy: name a file with one JSON document, or ``-`` for stdin.
    """

    code = "request.unreadable"


def request_in(file: str, client: ApiClient) -> dict[str, Any]:
    """Return the request in ``file``. A missing id is generated; a missing node is filled in if the
    agent has one node only.

    :raises RequestUnreadable, NotJson, TooManyValues: the file has no request.
    :raises ApiProblem, ApiUnreachable: the agent does not list its nodes.
    """
    wanted = read_request_file(file)
    wanted.setdefault("id", str(uuid.uuid4()))
    if "node" not in wanted:
        nodes = list(client.nodes())
        if len(nodes) != 1:
            raise RequestUnreadable(
                (
                    f"{_display_name(file)}: it names no node, and the agent has "
                    f"{number_of(len(nodes), 'node')}"
                ),
                "name a node by its uuid, see agent status",
            )
        wanted["node"] = nodes[0]["uuid"]
    return wanted


def read_request_file(file: str) -> dict[str, Any]:
    """Return the JSON object in ``file``, or in stdin if that is its name.

    :raises RequestUnreadable, NotJson, TooManyValues: the file has none.
    """
    wanted = decode(_content(file))
    if not isinstance(wanted, dict):
        raise RequestUnreadable(
            f"{_display_name(file)}: not a JSON object", "write it as the local API takes it"
        )
    return wanted


def _content(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    except OSError as error:
        raise RequestUnreadable(
            f"{_display_name(file)}: {error.strerror or error}", "check the path"
        ) from error


def _display_name(file: str) -> str:
    return "stdin" if file == STDIN else printable(file)


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


def select_nodes(nodes: Sequence[Document], wanted: Sequence[str]) -> Sequence[Document]:
    """Return the nodes that ``--node`` names, by name, pattern or uuid; all of them if it names
    none.

    :raises ConfigErrors: a name matches no node.
    """
    chosen, unmatched = choose_nodes(nodes, wanted, lambda node: (node["uuid"], node["name"]))
    if unmatched:
        there = ", ".join(printable(node["name"]) for node in nodes[:10]) or "none yet"
        raise ConfigErrors(
            [
                ConfigError(
                    f"--node {printable(name)}: the daemon has no such node", f"it has {there}"
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
