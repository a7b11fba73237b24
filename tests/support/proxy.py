"""A fault-injecting HTTP proxy on loopback, between the agent and a Placement server."""

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.support.exchange import OBSERVER_HEADER, Exchange, LogReader, RequestLog, arrived
from tests.support.faults import NEVER_CONNECTED, Faults, Loss, Outcome, Reply, carry_out

HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"}
)
UPSTREAM_TIMEOUT = 300.0


class FaultProxy(LogReader):
    """Passes every request on to ``target_url`` unless a fault hits it; logs what comes in.

    A single request can be cut, reset, held for ever, answered or disturbed (``faults``); refusing
    a connection is the whole proxy's: ``down()``. It accepts no more than ``most_connections`` at
    a time; a client that comes later is connected by the kernel, and waits. With ``tls`` its
    clients speak TLS.
    """

    def __init__(
        self, target_url: str, most_connections: int = 10_000, tls: ssl.SSLContext | None = None
    ) -> None:
        self._tls = tls
        self._target = urlsplit(target_url)
        self._most_connections = most_connections
        self.faults = Faults(*NEVER_CONNECTED)
        self._log = RequestLog()
        self.stopping = threading.Event()
        self.accepted = 0
        """How many connections there were, with those that there are."""
        self._server: _Server | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """Where clients find the proxy; the path is the target's."""
        scheme = "https" if self._tls else "http"
        return f"{scheme}://127.0.0.1:{self._port}{self._target.path}"

    @property
    def requests(self) -> list[Exchange]:
        return self._log.requests

    @property
    def connections(self) -> int:
        """How many clients are connected now."""
        return 0 if self._server is None else self._server.connected

    def clear(self) -> None:
        """Forget the log."""
        self._log.clear()

    def start(self) -> None:
        """Listen, on the port of the last time."""
        self.stopping.clear()
        self._server = _Server(("127.0.0.1", self._port), self, self._most_connections)
        self._port = self._server.server_address[1]
        if self._tls:
            self._server.socket = self._tls.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def stop(self) -> None:
        """Refuse new connections, close those there are, let held requests go."""
        if self._server is not None:
            self.stopping.set()
            self._server.shutdown()
            self._server.close_connections()
            self._server.server_close()
            self._server = None

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        """Inside, connections are refused."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def handle(
        self, method: str, raw_path: str, headers: Mapping[str, str], body: bytes
    ) -> Outcome:
        """Carry out one request."""
        if OBSERVER_HEADER in headers:
            return Outcome(self._forward(method, raw_path, headers, body), None)
        parts = urlsplit(raw_path)
        exchange = arrived(
            method, unquote(parts.path.removeprefix(self._target.path)), parts.query, headers, body
        )
        action = self.faults.hit(exchange)
        self._log.append(exchange)
        return carry_out(
            action,
            exchange,
            lambda: self._forward(method, raw_path, headers, body),
            self.stopping.wait,
        )

    def _forward(
        self, method: str, raw_path: str, headers: Mapping[str, str], body: bytes
    ) -> Reply:
        connection = HTTPConnection(
            str(self._target.hostname), self._target.port, timeout=UPSTREAM_TIMEOUT
        )
        with contextlib.closing(connection):
            passed_on = {
                name: value for name, value in headers.items() if name.lower() not in HOP_BY_HOP
            }
            connection.request(method, raw_path, body=body or None, headers=passed_on)
            answer = connection.getresponse()
            content = answer.read()
            kept = {
                name: value for name, value in answer.getheaders() if name.lower() not in HOP_BY_HOP
            }
            return Reply(answer.status, content, kept)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], proxy: FaultProxy, most: int) -> None:
        self.proxy = proxy
        self._places = threading.Semaphore(most)
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self.to_reset: set[socket.socket] = set()
        super().__init__(address, _Handler)

    @property
    def connected(self) -> int:
        with self._lock:
            return len(self._connections)

    def get_request(self) -> Any:
        while not self._places.acquire(timeout=0.05):
            if self.proxy.stopping.is_set():
                raise OSError("nobody is accepted any more")
        try:
            return super().get_request()
        except BaseException:
            self._places.release()
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._connections.add(request)
            self.proxy.accepted += 1
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._places.release()
        with self._lock:
            self._connections.discard(request)
            reset = request in self.to_reset
            self.to_reset.discard(request)
        if reset:
            # a close without shutdown, with nothing allowed to linger, is what makes the kernel
            # send RST
            request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_request(request)
        else:
            super().shutdown_request(request)

    def close_connections(self) -> None:
        with self._lock:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent: clients that went away are what this proxy is for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    server: _Server

    def _exchange(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            outcome = self.server.proxy.handle(self.command, self.path, self.headers, body)
        except (OSError, HTTPException):
            # because a Placement that went away closes the connection on a client that talks to it
            # directly
            outcome = Outcome(None, Loss.CUT)
        if outcome.loss is None or outcome.loss is Loss.HALF:
            self._answer(outcome)
        elif outcome.loss is Loss.READ_TIMEOUT:
            self._hold()
        elif outcome.loss is Loss.RESET:
            self.server.to_reset.add(self.connection)
        if outcome.loss is not None:
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = _exchange

    def _answer(self, outcome: Outcome) -> None:
        reply = outcome.reply
        assert reply is not None
        self.send_response_only(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(
            reply.body[: len(reply.body) // 2] if outcome.loss is Loss.HALF else reply.body
        )

    def _hold(self) -> None:
        """Say nothing until the client or the test has enough."""
        self.connection.settimeout(0.05)
        while not self.server.proxy.stopping.is_set():
            try:
                if not self.connection.recv(1, socket.MSG_PEEK):
                    return
            except TimeoutError:
                continue

    def log_message(self, *_args: Any) -> None:
        """The proxy's own log is kept instead."""
