"""A requests transport that hands requests to a WSGI application: no socket, no thread, the real
exceptions.
"""

import io
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote, urlsplit

import requests
import urllib3
import webob
from requests.adapters import HTTPAdapter

from tests.support.exchange import OBSERVER_HEADER, RequestLog, arrived
from tests.support.faults import Faults, Loss, Outcome, Reply, carry_out
from tests.support.losses import loss_error


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
