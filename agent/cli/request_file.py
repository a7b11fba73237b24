"""The request that a command sends, from a file or stdin."""

import os
import select
import stat
import sys
import time
import uuid
from typing import Any

from agent.api.body import read_json
from agent.api.client import ApiClient
from agent.api.problem import InvalidApiRequest, NotJson
from agent.errors import AgentError
from agent.model.names import number_of, printable

STDIN = "-"
MOST_BYTES = 1024 * 1024
"""The size of the largest request that the local API takes, in bytes."""
SILENCE = 10.0
"""Seconds that a pipe may give nothing."""


class RequestUnreadable(AgentError):
    """The file with the request cannot be read, or has no request.
    Remedy: name a file with one JSON document, or ``-`` for stdin.
    """

    code = "request.unreadable"


def request_in(file: str, client: ApiClient) -> dict[str, Any]:
    """Return the request in ``file``. A missing id is generated; a missing node is filled in if the
    agent has one node only.

    :raises RequestUnreadable, NotJson: the file has no request.
    :raises ApiProblem, ApiUnreachable: the agent does not list its nodes.
    """
    wanted = read_request_file(file)
    wanted.setdefault("id", str(uuid.uuid4()))
    if "node" not in wanted:
        nodes = list(client.nodes())
        if len(nodes) != 1:
            raise RequestUnreadable(
                (
                    f"{display_name(file)}: it names no node, and the agent has "
                    f"{number_of(len(nodes), 'node')}"
                ),
                "name a node by its uuid; see them: agent status",
            )
        wanted["node"] = nodes[0]["uuid"]
    return wanted


def read_request_file(file: str) -> dict[str, Any]:
    """Return the JSON object in ``file``, or in stdin if that is its name.

    :raises RequestUnreadable, NotJson: the file has none.
    """
    shown = display_name(file)
    try:
        wanted = read_json(_content(file), object, "the file")
    except (NotJson, InvalidApiRequest) as error:
        raise NotJson(
            f"{shown}: {error.message}", "write one JSON document, with one request"
        ) from error
    if not isinstance(wanted, dict):
        raise RequestUnreadable(f"{shown}: not a JSON object", "write it as the local API takes it")
    return wanted


def _content(file: str) -> bytes:
    try:
        content = sys.stdin.buffer.read(MOST_BYTES + 1) if file == STDIN else _read(file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RequestUnreadable(f"{display_name(file)}: {reason}", "check the path") from error
    if len(content) > MOST_BYTES:
        raise RequestUnreadable(
            f"{display_name(file)}: more than {MOST_BYTES} bytes",
            "name a file with one request, which is smaller",
        )
    return content


def _read(file: str) -> bytes:
    """Return up to one byte more than :data:`MOST_BYTES`, of a pipe or a device too.

    :raises OSError: the file cannot be read, or gives nothing for :data:`SILENCE` seconds.
    """
    # The opening of a pipe that nobody writes would wait for ever.
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
        parts, size, end = [], 0, time.monotonic() + SILENCE
        while size <= MOST_BYTES:
            if not select.select([descriptor], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError(f"nothing to read for {SILENCE:g} s")
            part = os.read(descriptor, MOST_BYTES + 1 - size)
            if part:
                parts.append(part)
                size, end = size + len(part), time.monotonic() + SILENCE
            elif size or not is_pipe:
                break
            elif time.monotonic() >= end:
                raise TimeoutError(f"nothing to read for {SILENCE:g} s")
            else:
                # A pipe ends while nobody has opened it for writing yet.
                time.sleep(0.05)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def display_name(file: str) -> str:
    """Return what messages call the file of a request."""
    return "stdin" if file == STDIN else printable(file)
