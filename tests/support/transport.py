"""A requests transport that hands requests to a WSGI application: no socket, no thread, the real
exceptions.
"""

import errno
import io
import os
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from http import HTTPStatus
from http.client import RemoteDisconnected
from typing import Any
from urllib.parse import unquote, urlsplit

import requests
import urllib3
import urllib3.exceptions as urllib3_errors
import webob
from requests import exceptions
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool
from urllib3.connection import HTTPConnection

from tests.support.exchange import OBSERVER_HEADER, RequestLog, arrived
from tests.support.faults import Faults, Loss, Outcome, Reply, carry_out

# ---
# What requests raises for a lost connection, built without one: the same classes, causes and texts
# as from a socket.


def loss_error(loss: Loss, request: requests.PreparedRequest) -> exceptions.RequestException:
    """The exception a client gets for any loss but ``HALF``, which is only found while the body is
    read.
    """
    return (
        _broken(loss, request)
        if loss in (Loss.CUT, Loss.RESET, Loss.READ_TIMEOUT)
        else _not_connected(loss, request)
    )


def _not_connected(loss: Loss, request: requests.PreparedRequest) -> exceptions.RequestException:
    parts = urlsplit(str(request.url))
    host, port = str(parts.hostname), parts.port or 80
    connection = HTTPConnection(host, port)
    system: OSError
    reason: Exception
    kind: type[exceptions.ConnectionError] = exceptions.ConnectionError
    if loss is Loss.CONNECT_TIMEOUT:
        system = TimeoutError("timed out")
        reason = urllib3_errors.ConnectTimeoutError(
            connection, f"Connection to {host} timed out. (connect timeout=5)"
        )
        kind = exceptions.ConnectTimeout
    elif loss is Loss.UNRESOLVED:
        system = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        reason = urllib3_errors.NameResolutionError(host, connection, system)
    elif loss is Loss.BAD_CERTIFICATE:
        text = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate"
        system = ssl.SSLCertVerificationError(1, text)
        reason = urllib3_errors.SSLError(system)
        kind = exceptions.SSLError
    else:
        number = errno.ECONNREFUSED if loss is Loss.REFUSED else errno.EHOSTUNREACH
        system = OSError(number, os.strerror(number))
        reason = urllib3_errors.NewConnectionError(
            connection, f"Failed to establish a new connection: {system}"
        )
    reason.__cause__ = system
    retried = urllib3_errors.MaxRetryError(HTTPConnectionPool(host, port), parts.path, reason)
    retried.__cause__ = reason
    return _outermost(kind, retried, request)


def _broken(loss: Loss, request: requests.PreparedRequest) -> exceptions.RequestException:
    parts = urlsplit(str(request.url))
    if loss is Loss.READ_TIMEOUT:
        pool = HTTPConnectionPool(str(parts.hostname), parts.port or 80)
        late = urllib3_errors.ReadTimeoutError(
            pool, parts.path, "Read timed out. (read timeout=60)"
        )
        late.__cause__ = TimeoutError("timed out")
        return _outermost(exceptions.ReadTimeout, late, request)
    system: OSError = RemoteDisconnected("Remote end closed connection without response")
    if loss is Loss.RESET:
        system = ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
    aborted = urllib3_errors.ProtocolError("Connection aborted.", system)
    aborted.__context__ = system
    return _outermost(exceptions.ConnectionError, aborted, request)


def _outermost(
    kind: type[exceptions.RequestException], below: Exception, request: requests.PreparedRequest
) -> exceptions.RequestException:
    error = kind(below, request=request)
    error.__context__ = below
    return error


class WSGITransport(HTTPAdapter):
    """Mount it on a ``requests.Session``; every request under ``base_url`` goes to ``app``.

    ``serving`` is entered around each call of the application. Requests are logged and disturbed by
    ``faults`` unless they carry the observer's header.
    """

    def __init__(
        self,
        app: Any,
        base_url: str,
        serving: Callable[[], AbstractContextManager[None]],
        log: RequestLog,
        faults: Faults,
    ) -> None:
        super().__init__()
        self._app = app
        self._base_url = base_url
        self._serving = serving
        self._log = log
        self._faults = faults

    def send(
        self, request: requests.PreparedRequest, *_args: Any, **_kwargs: Any
    ) -> requests.Response:
        """Answer a request as requests' own transport does, or raise what it raises."""
        body = request.body or b""
        content = body.encode() if isinstance(body, str) else bytes(body)
        path, query = self._target(str(request.url))
        if OBSERVER_HEADER in request.headers:
            return self.build_response(request, _raw(self._handle(request, path, query, content)))
        exchange = arrived(str(request.method), unquote(path), query, request.headers, content)
        action = self._faults.hit(exchange)
        self._log.append(exchange)
        outcome = carry_out(
            action, exchange, lambda: self._handle(request, path, query, content), time.sleep
        )
        return self._deliver(request, outcome)

    def _target(self, url: str) -> tuple[str, str]:
        parts = urlsplit(url)
        return parts.path.removeprefix(urlsplit(self._base_url).path) or "/", parts.query

    def _handle(
        self, request: requests.PreparedRequest, path: str, query: str, body: bytes
    ) -> Reply:
        target = f"{path}?{query}" if query else path
        wsgi = webob.Request.blank(
            target, base_url=self._base_url, method=request.method, body=body
        )
        for name, value in request.headers.items():
            wsgi.headers[name] = _text(value)
        with self._serving():
            response = wsgi.get_response(self._app)
            return Reply(response.status_int, response.body, dict(response.headers))

    def _deliver(self, request: requests.PreparedRequest, outcome: Outcome) -> requests.Response:
        if outcome.loss is not None and outcome.loss is not Loss.HALF:
            raise loss_error(outcome.loss, request)
        assert outcome.reply is not None
        raw = _raw(outcome.reply, part=0.5 if outcome.loss is Loss.HALF else 1.0)
        return self.build_response(request, raw)


def _raw(reply: Reply, part: float = 1.0) -> urllib3.HTTPResponse:
    headers: Mapping[str, str] = {"Content-Length": str(len(reply.body)), **reply.headers}
    return urllib3.HTTPResponse(
        body=io.BytesIO(reply.body[: int(len(reply.body) * part)]),
        headers=headers,
        status=reply.status,
        reason=HTTPStatus(reply.status).phrase,
        preload_content=False,
        enforce_content_length=True,
    )


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
