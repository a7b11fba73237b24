"""What somebody who may connect does to the agent's socket so that nobody else is served.

``python -m tests.functional.api.attacks SOCKET NODE ATTACK`` does it until it is killed.
"""

import contextlib
import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agent.api.client import ApiClient, ApiProblem
from agent.api.socket_file import UnixConnection
from tests.support.tracking import guest

BODIES = {
    "faulty items": b'{"nodes": [' + b"1," * 500_000 + b"1]}",
    "empty objects": b'{"nodes": [' + b"{}," * 340_000 + b"{}]}",
    "a name twice": json.dumps({str(number): 1 for number in range(80_000)})[:-1].encode()
    + b', "79999": 1}',
    "as many values as are read": b'{"nodes": [' + b"{}," * 19_000 + b"{}]}",
    "as many names as are read": json.dumps(
        {"x" * 30 + str(number): 1 for number in range(19_000)}
    ).encode(),
    "one name": json.dumps({"x" * 1_000_000: 1}).encode(),
    "one text": json.dumps({"nodes": ["x" * 1_000_000]}).encode(),
    "escapes": b'{"nodes": ["' + b"\\u0000" * 170_000 + b'"]}',
    "a number": b'{"nodes": [' + b"1" * 1_000_000 + b"]}",
    "depth": b'{"nodes": ' + b"[" * 500_000 + b"]" * 500_000 + b"}",
}
SHAPES = [
    b"GARBAGE\r\n\r\n",
    b"\r\n\r\n\r\n",
    b"\x16\x03\x01\x02\x00\r\n\r\n",
    b"\0" * 40_000,
    b"GET /healthz HTTP/1.1\n\n",
    b"GET /healthz HTTP/9.9\r\n\r\n",
    b"GET /%00%ff HTTP/1.1\r\n\r\n",
    b"GET /" + b"a" * 33_000,
    b"GET /healthz HTTP/1.1\r\n" + b"X: a\r\n" * 6_000 + b"\r\n",
    b"POST /v1/audits HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
    b"POST /v1/audits HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    b"POST /v1/audits HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n",
    b"CONNECT localhost:80 HTTP/1.1\r\n\r\n",
]
# What each of so many connections says and leaves at that.
UNFINISHED = {
    "1,000 idle connections": (b"", 1000),
    "1,000 heads that never end": (b"GET /healthz HTTP/1.1\r\nX: ", 1000),
    "200 bodies of 1 MB that never end": (
        b"POST /v1/audits HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{"
        + b" " * 900_000,
        200,
    ),
    "100 connections of 100 requests each, one behind the other": (
        b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n" * 100,
        100,
    ),
}
CLIENTS, FLOODERS, BODIES_AT_ONCE = 24, 16, 4
# In seconds.
PAUSE = 1.0


def connected(path: Path) -> socket.socket:
    """A bare connection."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    found.settimeout(60)
    found.connect(str(path))
    return found


def post(path: Path, target: str, body: bytes) -> tuple[int, bytes, dict[str, str]]:
    """What a body is answered with: status, body, headers."""
    connection = UnixConnection(path, 120)
    connection.request("POST", target, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    found = (
        answer.status,
        answer.read(),
        {name.lower(): value for name, value in answer.getheaders()},
    )
    connection.close()
    return found


@contextlib.contextmanager
def unfinished(path: Path, name: str) -> Iterator[None]:
    """Inside, the connections of that name are open, as far as they are let."""
    said, many = UNFINISHED[name]
    with contextlib.ExitStack() as stack:
        for _ in range(many):
            with contextlib.suppress(OSError):
                stack.enter_context(connected(path)).sendall(said)
        yield


@contextlib.contextmanager
def unread(path: Path, node: str) -> Iterator[None]:
    """Inside, clients have asked until nothing more was taken of them, and read nothing."""
    with contextlib.ExitStack() as stack:
        for _ in range(CLIENTS):
            one = stack.enter_context(connected(path))
            one.setblocking(False)
            with contextlib.suppress(OSError):
                while True:
                    one.send(f"GET /v1/nodes/{node} HTTP/1.1\r\nHost: a\r\n\r\n".encode() * 50)
        yield


def send_bodies(path: Path, _node: str) -> None:
    """Each of the bodies, a few at a time."""
    with ThreadPoolExecutor(BODIES_AT_ONCE) as pool:
        for body in BODIES.values():
            list(pool.map(lambda one: post(path, "/v1/audits", one), [body] * BODIES_AT_ONCE))


def send_shapes(path: Path, _node: str) -> None:
    """Each of the shapes, once on a connection of its own, and cut off after each half too."""
    for shape in SHAPES:
        for part in (shape, shape[: len(shape) // 2]):
            with contextlib.suppress(OSError), connected(path) as one:
                one.sendall(part)
                one.shutdown(socket.SHUT_WR)
                while one.recv(65536):
                    pass


def flood(path: Path, _node: str) -> None:
    """Ask for health from many threads, each on a new connection every time."""
    with ThreadPoolExecutor(FLOODERS) as pool:
        list(pool.map(lambda _: ApiClient(path).health(), range(100 * FLOODERS)))


def ask_placement(path: Path, _node: str) -> None:
    """Requests that wait for Placement, twice as many as there are threads."""

    def remove(number: int) -> None:
        with contextlib.suppress(ApiProblem):
            ApiClient(path).remove_allocation(guest(f"h{number}"), "all")

    with ThreadPoolExecutor(FLOODERS) as pool:
        list(pool.map(remove, range(FLOODERS)))
    time.sleep(0.05)


def ask_store(path: Path, _node: str) -> None:
    """Requests that need the store."""

    def look(_number: int) -> None:
        with contextlib.suppress(ApiProblem):
            next(iter(ApiClient(path).claims()), None)

    with ThreadPoolExecutor(FLOODERS) as pool:
        list(pool.map(look, range(FLOODERS)))
    time.sleep(0.05)


def _unfinished(name: str) -> Callable[[Path, str], None]:
    def round_(path: Path, _node: str) -> None:
        with unfinished(path, name):
            time.sleep(PAUSE)

    return round_


def _unread(path: Path, node: str) -> None:
    with unread(path, node):
        time.sleep(PAUSE)


ATTACKS: dict[str, Callable[[Path, str], None]] = {
    "raw shapes that are no HTTP": send_shapes,
    "bodies of 1 MiB, four at a time": send_bodies,
    f"{CLIENTS} clients that pipeline requests and read nothing": _unread,
    **{name: _unfinished(name) for name in UNFINISHED},
    f"{FLOODERS} threads that ask without a pause": flood,
    "a Placement that hangs, and 16 requests that wait for it": ask_placement,
    "a PostgreSQL that hangs, and 16 requests that wait for it": ask_store,
}


if __name__ == "__main__":
    while True:
        ATTACKS[sys.argv[3]](Path(sys.argv[1]), sys.argv[2])
