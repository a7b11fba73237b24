"""A request from a file or from stdin, completed with what need not be said."""

import sys
import uuid
from pathlib import Path
from typing import Any

from agent.api.body import decoded
from agent.api.client import ApiClient
from agent.errors import AgentError
from agent.model.names import printable

STDIN = "-"


class RequestUnreadable(AgentError):
    """The file with the request cannot be read, or holds no request."""

    code = "request.unreadable"


def request_in(file: str, client: ApiClient) -> dict[str, Any]:
    """The request in ``file``. One without an id gets one; one without a node is for the only one there is.

    :raises RequestUnreadable, NotJson: there is no request in it.
    :raises ApiProblem, ApiUnreachable: the agent does not say which nodes it has.
    """
    wanted = decoded(_content(file))
    if not isinstance(wanted, dict):
        raise RequestUnreadable(f"{_called(file)}: not a JSON object", "write it as the local API takes it")
    wanted.setdefault("id", str(uuid.uuid4()))
    if "node" not in wanted:
        nodes = list(client.nodes())
        if len(nodes) != 1:
            raise RequestUnreadable(f"{_called(file)}: it has no node, and the agent has {len(nodes)} of them", "name one by its uuid, see agent status")
        wanted["node"] = nodes[0]["uuid"]
    return wanted


def _content(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    except OSError as error:
        raise RequestUnreadable(f"{_called(file)}: {error.strerror or error}", "check the path") from error


def _called(file: str) -> str:
    return "stdin" if file == STDIN else printable(file)
