"""cheroot's classes adapted to a local socket: connections with a peer, and requests that are
refused with problem documents.
"""

import json
import logging
import re
import socket
import time
from collections.abc import Callable
from typing import Any

from cheroot.server import HeaderReader, HTTPConnection, HTTPRequest
from cheroot.wsgi import Gateway_10

from agent.api.access import Peer, peer_of
from agent.api.application import PEER
from agent.api.problem import MEDIA_TYPE, phrase, plain, refusal
from agent.api.receive_buffer import ReceiveBuffer
from agent.api.send_buffer import SendBuffer
from agent.deadline import within

# In seconds. A request that is not done by then is answered 503 or 504, before clients give up.
ANSWER_SECONDS = 20.0

LOG = logging.getLogger(__name__)


class _Lines:
    """A file that remembers the lines that were read from it."""

    def __init__(self, file: Any) -> None:
        self._file, self.read = file, list[bytes]()

    def readline(self) -> bytes:
        line: bytes = self._file.readline()
        self.read.append(line)
        return line


class Headers(HeaderReader):
    """Reads headers, and refuses those that two parsers could understand differently."""

    def __call__(self, rfile: Any, hdict: dict[bytes, bytes] | None = None) -> dict[bytes, bytes]:
        """Return the headers.

        :raises ValueError: they are malformed or ambiguous.
        """
        lines = _Lines(rfile)
        found: dict[bytes, bytes] = super().__call__(lines, hdict)
        parts = [line.partition(b":") for line in lines.read]
        if any(name != name.strip() for name, colon, _ in parts if colon):
            raise ValueError("There is white space around the name of a header.")
        lengths = [value.strip() for name, _, value in parts if name.lower() == b"content-length"]
        if len(lengths) > 1:
            raise ValueError("There is more than one Content-Length.")
        if lengths and not re.fullmatch(rb"[0-9]+", lengths[0]):
            raise ValueError("The Content-Length is no number.")
        return found


class Request(HTTPRequest):
    """A request that is refused with a problem document, where cheroot would answer with text."""

    header_reader = Headers()

    def read_request_headers(self) -> bool:
        """Read the headers; refuse a body of unknown length (chunked). Return whether the request
        is accepted.
        """
        accepted = bool(super().read_request_headers())  # type: ignore[no-untyped-call]
        if accepted and self.chunked_read:
            self.simple_response("411 Length Required", "the length of the body is not given")
            return False
        return accepted

    def send_headers(self) -> None:
        """Have the head of the answer wait for its body."""
        self.conn.wfile.holds = True
        try:
            super().send_headers()
        finally:
            self.conn.wfile.holds = False

    def simple_response(self, status: str, msg: str = "") -> None:
        """Refuse the request with a problem document, and close the connection."""
        code, remedy = refusal(int(str(status)[:3]))
        problem = plain(code, msg or str(status), remedy)
        body = json.dumps(problem).encode()
        again = "Retry-After: 1\r\n" if problem["status"] == 503 else ""
        head = (
            f"HTTP/1.1 {phrase(problem['status'])}\r\nContent-Type: "
            f"{MEDIA_TYPE}\r\nContent-Length: {len(body)}\r\n{again}Connection: close\r\n\r\n"
        )
        self.close_connection = self.sent_headers = True
        self.conn.wfile.write(head.encode() + body)


class LocalConnection(HTTPConnection):
    """A connection with its peer, and the time since which a request is arriving."""

    RequestHandlerClass = Request

    def __init__(self, server: Any, sock: socket.socket, _makefile: Callable[..., Any]) -> None:
        super().__init__(
            server,
            sock,
            lambda connection, mode, _size: (
                ReceiveBuffer(connection) if "r" in mode else SendBuffer(connection)
            ),
        )
        self.peer = self.peer_of(sock)
        self._waiting_since = time.time()
        # Whether the client sent the next request before it had the answer to the last one.
        self.pipelines = False

    @staticmethod
    def peer_of(connection: socket.socket) -> Peer | str:
        """Return the peer."""
        return peer_of(connection)

    @property
    def last_used(self) -> float:
        """The time since which the server waits for a request. Parts of a request that arrive do
        not move it.
        """
        return self._waiting_since

    @last_used.setter
    def last_used(self, now: float) -> None:
        if self.rfile.empty:
            self._waiting_since = now

    def close(self) -> None:
        """Close the connection once the rest of its answer is sent. Never raises, because that
        would end the worker thread, and the server with it.
        """
        try:
            if self.wfile.left:
                self.server.send_to(self, self.close)
                return
            try:
                self.server.forget(self)
            finally:
                super().close()
                # cheroot's caches of these methods refer to the connection, which would stay, with
                # its buffers and up to some thousand others, until Python looks for garbage.
                for name in ("resolve_peer_creds", "get_peer_creds"):
                    vars(self).pop(name, None)
        except Exception:
            LOG.exception("closing a connection")


class Gateway(Gateway_10):
    """Passes a request with its peer to the application, and limits the time of the answer."""

    def respond(self) -> None:
        """Answer the request within ``ANSWER_SECONDS``; waiting for an audit or a reload is not
        limited.

        SystemExit and KeyboardInterrupt in a handler become RuntimeError, so that the server goes
        on.
        """
        try:
            with within(ANSWER_SECONDS):
                super().respond()
            # The head of an answer without a body.
            self.req.conn.wfile.send()
        except (KeyboardInterrupt, SystemExit) as error:
            raise RuntimeError(repr(error)) from error

    def get_environ(self) -> dict[str, Any]:  # type: ignore[override]
        """Return the WSGI environment with the peer."""
        environment: dict[str, Any] = super().get_environ()  # type: ignore[no-untyped-call]
        return {**environment, PEER: self.req.conn.peer}
