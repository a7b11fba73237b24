"""HTTP for keystoneauth sessions with limits: on the size of an answer, on its total time, and on
where a token is sent; and calls of several threads that leave no idle connections.
"""

import http.client
import io
import math
import os
import queue
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urljoin, urlsplit

import requests
import urllib3
from keystoneauth1.session import TCPKeepAliveAdapter
from requests.structures import CaseInsensitiveDict
from urllib3.connection import HTTPConnection, HTTPSConnection

from agent.deadline import left

MIB = 1024 * 1024
MAX_ANSWER = 64 * MIB
"""Bytes."""
MAX_IDLE = 64
"""Connections to one server that are kept while nobody uses them, at most: as many as there may be
requests under way ([placement] max_in_flight).
"""
UNKEPT = 3600.0
"""Seconds in which no connection is kept after a server had closed a kept one without a word."""
_PIECE = 64 * 1024
_HERE = threading.local()
# A server that ends a connection of TLS without saying so is an error of its own in ssl.
_CLOSED = (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
_REDIRECTS = frozenset({301, 302, 303, 305, 307, 308})
# The errors of a body, by what requests calls them; the first that fits counts.
_OF_REQUESTS: Sequence[tuple[type[Exception], type[requests.exceptions.RequestException]]] = (
    (TimeoutError, requests.exceptions.ReadTimeout),
    (urllib3.exceptions.ReadTimeoutError, requests.exceptions.ReadTimeout),
    (urllib3.exceptions.SSLError, requests.exceptions.SSLError),
    (urllib3.exceptions.DecodeError, requests.exceptions.ContentDecodingError),
    (Exception, requests.exceptions.ChunkedEncodingError),
)

Result = TypeVar("Result")


class AnswerTooLong(requests.exceptions.RequestException):
    """An answer is longer than ``max_answer``; the rest of it was not read."""


class Redirected(requests.exceptions.RequestException):
    """A server redirected the client, and the request must not be sent elsewhere."""


class ClosedUnused(http.client.RemoteDisconnected):
    """The server had closed a kept connection when the next request came, and gave no answer."""


class _UntilDeadline(io.RawIOBase):
    """Reads from a socket until a deadline; before each wait ``socket`` gets the remaining time as
    its timeout.
    """

    def __init__(self, raw: io.RawIOBase, socket: Any, seconds: float) -> None:
        self._raw, self._socket = raw, socket
        self._deadline = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer does not come to its end in time")
        self._socket.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


class _BoundedResponse(http.client.HTTPResponse):
    """A response whose head and body have to arrive together within the socket's timeout for one
    read.
    """

    def __init__(self, sock: Any, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        seconds = sock.gettimeout()
        if seconds is not None:
            raw = self.fp.detach()
            self.fp = io.BufferedReader(_UntilDeadline(raw, sock, seconds))


class _Connection(HTTPConnection):
    response_class = _BoundedResponse


class _TlsConnection(HTTPSConnection):
    response_class = _BoundedResponse


class _IdleConnections(urllib3.HTTPConnectionPool):
    """A pool of connections to one server whose idle ones can be closed.

    None is kept for a while once the server has closed a kept one without a word, as uWSGI's HTTP
    socket does after every answer.
    """

    _keeps_from = -math.inf

    def _make_request(self, conn: Any, *args: Any, **options: Any) -> Any:
        """Send a request and read the head of its answer.

        :raises ClosedUnused: the connection had been used before, and is closed without an answer.
        """
        kept = conn.sock is not None and conn.sock is getattr(conn, "answered", None)
        try:
            answer = super()._make_request(conn, *args, **options)
        except _CLOSED as error:
            if not kept:
                raise
            self._keeps_from = time.monotonic() + UNKEPT
            self.close_idle(0)
            raise ClosedUnused("the server had closed the connection") from error
        conn.answered = conn.sock
        return answer

    def _put_conn(self, conn: Any) -> None:
        """Keep a connection, or close it."""
        if conn is not None and time.monotonic() < self._keeps_from:
            conn.close()
        super()._put_conn(conn)

    def close_idle(self, keep: int) -> None:
        """Close the connections that nobody uses, but the ``keep`` last used ones."""
        idle = []
        # None once the whole pool was closed.
        while (pool := self.pool) is not None:
            try:
                connection = pool.get(block=False)
            except queue.Empty:
                break
            # A place that had no connection yet is None.
            if connection is not None:
                idle.append(connection)
        for connection in idle[keep:]:
            connection.close()
        for connection in reversed(idle[:keep]):
            self._put_conn(connection)


class _Pool(_IdleConnections):
    ConnectionCls = _Connection


class _TlsPool(_IdleConnections, urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class BoundedAdapter(TCPKeepAliveAdapter):
    """Reads every answer whole, up to ``max_answer`` bytes after decompression, within the time
    that the caller waits for an answer.

    A redirect is refused if the request carries a token, or if it leads to another server.
    """

    def __init__(self, max_answer: int = MAX_ANSWER, **options: Any) -> None:
        self._max_answer = max_answer
        super().__init__(pool_maxsize=MAX_IDLE, **options)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """Create the connection pools."""
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}

    def proxy_manager_for(self, *args: Any, **options: Any) -> Any:
        """Return the connection pools for a proxy."""
        manager = super().proxy_manager_for(*args, **options)
        manager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
        return manager

    def close_idle(self, keep: int) -> None:
        """Close the connections that nobody uses, but the ``keep`` last used ones to each server.
        Safe beside requests of other threads.
        """
        for manager in (self.poolmanager, *self.proxy_manager.values()):
            for key in manager.pools.keys():  # noqa: SIM118 - it cannot be iterated itself
                pool = manager.pools.get(key)
                if pool is not None:
                    pool.close_idle(keep)

    def send(
        self, request: requests.PreparedRequest, *_args: Any, **options: Any
    ) -> requests.Response:
        """Send ``request`` and read the answer.

        :raises AnswerTooLong: its body is longer than it may be.
        :raises Redirected: the server redirects the request, and it must not follow.
        """
        answer = super().send(
            request,
            **{**options, "stream": True, "timeout": _in_time(options.get("timeout"), request)},
        )
        try:
            _refuse_redirect(request, answer)
            content = self._content(answer)
        finally:
            answer.close()
        answer.raw = io.BytesIO(content)
        return answer

    def _content(self, answer: requests.Response) -> bytes:
        """Read the body, at most ``max_answer`` bytes after decompression; errors become those of
        requests.
        """
        pieces, length = [], 0
        try:
            for piece in answer.raw.stream(_PIECE, decode_content=True):
                length += len(piece)
                if length > self._max_answer:
                    raise AnswerTooLong(
                        f"the answer is longer than {self._max_answer // MIB} MiB",
                        request=answer.request,
                        response=answer,
                    )
                pieces.append(piece)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            kind = next(kind for found, kind in _OF_REQUESTS if isinstance(error, found))
            raise kind(error, request=answer.request) from error
        return b"".join(pieces)


def _in_time(timeout: Any, request: requests.PreparedRequest) -> Any:
    """Return the timeouts for a connection and for an answer, bounded by the present thread's
    deadline.

    :raises requests.exceptions.ConnectTimeout: no time is left.
    """
    seconds = left()
    if seconds == math.inf:
        return timeout
    if seconds == 0:
        raise requests.exceptions.ConnectTimeout(
            "there was no time left to send it", request=request
        )
    connect, read = timeout if isinstance(timeout, tuple) else (timeout, timeout)
    return (
        seconds if connect is None else min(connect, seconds),
        seconds if read is None else min(read, seconds),
    )


def _refuse_redirect(request: requests.PreparedRequest, answer: requests.Response) -> None:
    """Raise :class:`Redirected` if the answer is a redirect that must not be followed."""
    target = answer.headers.get("Location")
    if answer.status_code not in _REDIRECTS or target is None:
        return
    came_from = str(request.url)
    try:
        goes_to = urljoin(came_from, target)
        stays = _origin(came_from) == _origin(goes_to)
    except ValueError:
        # The target is no URL.
        goes_to, stays = target, False
    if "X-Auth-Token" in request.headers or not stays:
        shown = goes_to.partition("?")[0]
        raise Redirected(f"{answer.status_code} to {shown}", request=request, response=answer)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def close_idle_connections(session: requests.Session, keep: int) -> None:
    """Close the connections of a session that nobody uses, but the ``keep`` last used ones to each
    server; those of another adapter than :class:`BoundedAdapter` stay.
    """
    for adapter in set(session.adapters.values()):
        if isinstance(adapter, BoundedAdapter):
            adapter.close_idle(keep)


class _Session(requests.Session):
    """Reads what the environment says of a server (proxies, authorities) before the first request
    to it only, because requests searches all variables for each one. Files of passwords (.netrc)
    are not read: the services get tokens.
    """

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False
        self._proxies: dict[tuple[str, str | None, int | None], dict[str, str]] = {}
        self._authorities = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")

    def prepare_request(self, request: requests.Request) -> requests.PreparedRequest:
        """Return the request as it is sent, with the headers and cookies of the session.

        requests also searches the session for parameters, hooks and passwords, which takes more of
        the processor than all the rest and which no session here has.
        """
        prepared = requests.PreparedRequest()
        prepared.prepare(
            method=request.method,
            url=request.url,
            headers=CaseInsensitiveDict({**self.headers, **request.headers}),
            files=request.files,
            data=request.data,
            params=request.params or None,
            auth=request.auth,
            cookies=request.cookies or self.cookies,
            hooks=request.hooks,
            json=request.json,
        )
        return prepared

    def merge_environment_settings(
        self, url: str, proxies: Any, stream: Any, verify: Any, cert: Any
    ) -> dict[str, Any]:
        """Return the settings of a request to ``url``; those that it names come first."""
        origin = _origin(url)
        if origin not in self._proxies:
            self._proxies[origin] = requests.utils.get_environ_proxies(url)
        if verify is None or verify is True:
            verify = self._authorities or True
        return {
            "proxies": {**self._proxies[origin], **(proxies or {})},
            "stream": stream,
            "verify": verify,
            "cert": cert,
        }


def bounded_session(
    max_answer: int = MAX_ANSWER, limits: Mapping[str, Any] | None = None
) -> requests.Session:
    """Return the session that a keystoneauth session sends through; ``limits`` are further
    arguments of its adapter (``tls_ciphers``, ``tls_min_version``).
    """
    session = _Session()
    adapter = BoundedAdapter(max_answer, **(limits or {}))
    for scheme in list(session.adapters):
        session.mount(scheme, adapter)
    return session


class LastCalls:
    """Closes idle connections as soon as no call waits to begin: a thread that ends a call has no
    other one then.

    A server, or a balancer before it, accepts so many connections and lets others wait. Where many
    agents begin at once, connections that one of them has and does not use would keep those waiting
    that another one needs, or this one itself.

    ``close_surplus`` closes all idle connections but one. Calls in a call close none
    (:meth:`in_one`), because the calls around go on with them.
    """

    def __init__(self, calls: int, close_surplus: Callable[[], None]) -> None:
        self._close_surplus = close_surplus
        self._lock = threading.Lock()
        self._waiting = calls

    def run(self, call: Callable[[], Result]) -> Result:
        """Make one of the calls."""
        with self._lock:
            self._waiting -= 1
        _HERE.in_one = True
        try:
            return call()
        finally:
            _HERE.in_one = False
            if self._waiting <= 0:
                self._close_surplus()

    @staticmethod
    def in_one() -> bool:
        """Tell whether this thread is in such a call."""
        return getattr(_HERE, "in_one", False)

    @staticmethod
    @contextmanager
    def apart() -> Iterator[None]:
        """Have the calls of the block close connections although this thread is in such a call:
        the calls around do not go on before those inside have ended.
        """
        before, _HERE.in_one = LastCalls.in_one(), False
        try:
            yield
        finally:
            _HERE.in_one = before
