"""One request to Placement as a test sees it, and the ordered log of them."""

import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

OBSERVER_HEADER = "X-Test-Observer"
"""A request with this header comes from the test itself: it is neither logged nor disturbed."""


@dataclass
class Exchange:
    """A request in the order of arrival; ``status`` stays ``None`` when no answer was given to the
    client.
    """

    method: str
    path: str
    """Below the service's prefix, percent-decoded: ``/resource_providers/<uuid>/inventories``."""
    query: str = ""
    """As sent, still encoded."""
    version: str | None = None
    """The microversion alone, ``1.39``; ``None`` when the request carried none."""
    request_id: str | None = None
    """The global request id that the client chose."""
    body: Any = None
    """The decoded JSON body; the raw text when it is not JSON; ``None`` without a body."""
    status: int | None = None
    server_request_id: str | None = None
    reached: bool = False
    """Whether Placement itself handled the request, so that a write may have been applied."""
    fault: str | None = None
    """The name of the fault that was injected."""

    @property
    def target(self) -> str:
        """Path and query as in the request line."""
        return f"{self.path}?{self.query}" if self.query else self.path

    @property
    def is_write(self) -> bool:
        return self.method not in ("GET", "HEAD")

    def __str__(self) -> str:
        return f"{self.method} {self.target} -> {self.status or self.fault}"

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def arrived(
    method: str, path: str, query: str, headers: Mapping[str, str], body: bytes
) -> Exchange:
    """The exchange of a request that has just come in; ``path`` is decoded, ``headers`` ignore
    upper and lower case.
    """
    version = headers.get("OpenStack-API-Version")
    return Exchange(
        method=method,
        path=path or "/",
        query=query,
        version=version.removeprefix("placement ") if version else None,
        request_id=headers.get("X-OpenStack-Request-Id"),
        body=_decoded(body),
    )


def _decoded(body: bytes) -> Any:
    if not body:
        return None
    try:
        return json.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace")


class RequestLog:
    """Exchanges in the order of arrival, from any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._exchanges: list[Exchange] = []

    def append(self, exchange: Exchange) -> None:
        with self._lock:
            self._exchanges.append(exchange)

    @property
    def requests(self) -> list[Exchange]:
        """Every request so far, a fresh list."""
        with self._lock:
            return list(self._exchanges)

    def clear(self) -> None:
        with self._lock:
            self._exchanges.clear()


class LogReader:
    """Questions that tests ask of a log; the server or proxy supplies ``requests``."""

    @property
    def requests(self) -> list[Exchange]:
        raise NotImplementedError

    def count(self, method: str | None = None) -> int:
        """How many requests came, of one method or of all."""
        return sum(1 for exchange in self.requests if method in (None, exchange.method))

    def writes(self) -> list[Exchange]:
        """The requests that were no reads."""
        return [exchange for exchange in self.requests if exchange.is_write]

    def lines(self) -> list[str]:
        """One line a request, for comparing traffic: ``PUT /resource_providers/<uuid>/traits ->
        200``.
        """
        return [str(exchange) for exchange in self.requests]


def read_json_lines(lines: Iterable[str]) -> list[Exchange]:
    """Exchanges that another process wrote down with ``to_json``."""
    return [Exchange(**json.loads(line)) for line in lines]
