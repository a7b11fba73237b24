"""cheroot's parts as a local socket needs them: connections with a peer, requests refused with problems."""

import json
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from cheroot.server import HTTPConnection, HTTPRequest
from cheroot.wsgi import Gateway_10

from agent.api.application import PEER
from agent.api.inbox import Inbox, Outbox
from agent.api.peer import Peer, peer_of
from agent.api.problem import MEDIA_TYPE, phrase, plain

# What cheroot refuses by itself, by its status: code and remedy.
REFUSALS: Mapping[int, tuple[str, str]] = {
    400: ("request.malformed", "speak HTTP/1.1"),
    405: ("request.method", "use a method that openapi.yaml describes"),
    408: ("request.timeout", "send a request at once"),
    411: ("request.length", "send a Content-Length instead of a Transfer-Encoding"),
    413: ("request.too-large", "send headers of 32 KiB and a body of 1 MiB at most"),
    414: ("request.too-long", "send a path of 32 KiB at most"),
    501: ("request.length", "send a Content-Length instead of a Transfer-Encoding"),
    503: ("agent.busy", "try again"),
    505: ("request.version", "speak HTTP/1.1"),
}


class Request(HTTPRequest):
    """A request that is refused with a problem, where cheroot would answer with text."""

    def read_request_headers(self) -> bool:
        """Read them; a body of unknown length is not taken."""
        accepted = bool(super().read_request_headers())  # type: ignore[no-untyped-call]
        if accepted and self.chunked_read:
            self.simple_response("411 Length Required", "the length of the body is not given")
            return False
        return accepted

    def simple_response(self, status: str, msg: str = "") -> None:
        """Refuse, and close."""
        code, remedy = REFUSALS.get(int(str(status)[:3]), ("agent.bug", "report it, with the log"))
        problem = plain(code, msg or str(status), remedy)
        body = json.dumps(problem).encode()
        head = f"HTTP/1.1 {phrase(problem['status'])}\r\nContent-Type: {MEDIA_TYPE}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        self.close_connection = self.sent_headers = True
        self.conn.wfile.write(head.encode() + body)


class Connection(HTTPConnection):
    """A connection that knows its peer, and since when a request is on its way."""

    RequestHandlerClass = Request

    def __init__(self, server: Any, sock: socket.socket, _makefile: Callable[..., Any]) -> None:
        super().__init__(server, sock, lambda connection, mode, _size: Inbox(connection) if "r" in mode else Outbox(connection))
        self.peer: Peer = peer_of(sock)
        self._waiting_since = time.time()

    @property
    def last_used(self) -> float:
        """Since when the server waits for it; a request that comes in small parts makes that no later."""
        return self._waiting_since

    @last_used.setter
    def last_used(self, now: float) -> None:
        if self.rfile.empty:
            self._waiting_since = now

    def close(self) -> None:
        """It is over."""
        self.server.forget(self)
        super().close()


class Gateway(Gateway_10):
    """Tells the application who asks."""

    def get_environ(self) -> dict[str, Any]:  # type: ignore[override]
        """The environment, with the peer."""
        environment: dict[str, Any] = super().get_environ()  # type: ignore[no-untyped-call]
        return {**environment, PEER: self.req.conn.peer}
