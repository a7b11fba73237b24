"""One request to Placement as a test sees it, and the ordered log of them."""

import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import parse_qsl

from agent.model.names import ApiVersion

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


# ---
# Traffic in the notation of the specification: ``PUT inv R g7 -> 200`` instead of a path with a
# uuid and a body.


WHAT = {
    "inventories": "inv",
    "traits": "tr",
    "aggregates": "ag",
    "allocations": "al",
    "usages": "us",
}
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def traffic(requests: Iterable[Exchange], names: Mapping[str, str] | None = None) -> list[str]:
    """One line a request. A provider is shown by ``names`` (uuid → name), else by the name in the
    POST that made it.
    """
    log = list(requests)
    known = {
        one.body["uuid"]: one.body["name"]
        for one in log
        if one.method == "POST" and one.path == "/resource_providers"
    }
    known |= names or {}

    def named(text: str) -> str:
        return UUID.sub(lambda match: known.get(match[0], match[0]), text)

    return [f"{one.method} {_about(one, named)} -> {one.status or one.fault}" for one in log]


def _about(one: Exchange, named: Callable[[str], str]) -> str:
    if one.path == "/reshaper":
        providers, consumers = (
            sorted(map(named, one.body[what])) for what in ("inventories", "allocations")
        )
        return " ".join(["reshaper", *providers, *consumers])
    return named(_place(one))


def _place(one: Exchange) -> str:
    parts = one.path.strip("/").split("/")
    if one.path == "/resource_providers":
        return _of_all(one)
    if parts[0] == "resource_providers" and len(parts) == 2:
        return f"RP {parts[1]}"
    if parts[0] == "resource_providers":
        guard = (
            f" g{one.body['resource_provider_generation']}" if isinstance(one.body, Mapping) else ""
        )
        return f"{WHAT[parts[2]]} {parts[1]}{guard}"
    if parts[0] == "allocations" and isinstance(one.body, Mapping):
        bodies = {parts[1]: one.body} if len(parts) == 2 else one.body
        return "allocations " + ", ".join(
            f"{consumer} cg {_generation(body)}" for consumer, body in bodies.items()
        )
    if one.query:
        return f"{parts[0]}?" + "&".join(f"{name}={value}" for name, value in parse_qsl(one.query))
    return one.path if parts == [""] else " ".join(parts)


def _generation(body: Mapping[str, Any]) -> str:
    """A consumer's generation as it was sent."""
    return "null" if body["consumer_generation"] is None else str(body["consumer_generation"])


def _of_all(one: Exchange) -> str:
    """A list of providers, or the making of one."""
    if one.method == "GET":
        return " ".join(f"{name}={value}" for name, value in parse_qsl(one.query))
    parent = one.body.get("parent_provider_uuid")
    return f"RP {one.body['uuid']}" + (f" under {parent}" if parent else "")


# ---
# What microversion each request to Placement needs, as its API says, and at least the one from
# which on errors have codes.


CODES, NULLABLE_GENERATION, RESHAPES, MAPPINGS = "1.23", "1.28", "1.30", "1.34"
CANDIDATES, NEW_PARENTS, CONSUMER_TYPES = "1.36", "1.37", "1.38"
LEAST: Mapping[str, str] = {
    "GET /resource_providers": CODES,
    "POST /resource_providers": CODES,
    "GET /resource_providers/*": CODES,
    "PUT /resource_providers/*": CODES,
    "DELETE /resource_providers/*": CODES,
    "GET /resource_providers/*/inventories": CODES,
    # Before 1.26, a record may not have all of its total reserved.
    "PUT /resource_providers/*/inventories": "1.26",
    "GET /resource_providers/*/traits": CODES,
    "PUT /resource_providers/*/traits": CODES,
    "GET /resource_providers/*/aggregates": CODES,
    "PUT /resource_providers/*/aggregates": CODES,
    "GET /resource_providers/*/usages": CODES,
    "GET /resource_providers/*/allocations": NULLABLE_GENERATION,
    "GET /traits": CODES,
    "PUT /traits/*": CODES,
    "DELETE /traits/*": CODES,
    "PUT /resource_classes/*": CODES,
    "DELETE /resource_classes/*": CODES,
    "GET /allocations/*": NULLABLE_GENERATION,
    "PUT /allocations/*": NULLABLE_GENERATION,
    "DELETE /allocations/*": CODES,
    "POST /allocations": NULLABLE_GENERATION,
    "POST /reshaper": RESHAPES,
    "GET /allocation_candidates": CANDIDATES,
    "GET /usages": CODES,
}
"""The kinds of requests that the agent sends beside ``GET /``, which needs none."""


def kind(one: Exchange) -> str:
    """The request without names and uuids, as in ``LEAST``."""
    return f"{one.method} {re.sub(r'(?<=[a-z]/)[^/]+', '*', one.path, count=1)}"


def without_their_version(requests: Iterable[Exchange]) -> list[str]:
    """The requests whose microversion is lower than they need, or that have none.

    :raises KeyError: a request is of a kind that is not in ``LEAST``.
    """
    return [
        f"{one} at {one.version}, not {_least(one)}"
        for one in requests
        if kind(one) != "GET /"
        and (one.version is None or ApiVersion.of(one.version) < ApiVersion.of(_least(one)))
    ]


def _least(one: Exchange) -> str:
    fields = _fields(one.body)
    if one.method == "PUT" and "parent_provider_uuid" in fields:
        return NEW_PARENTS
    if "/allocations" in one.path and "consumer_type" in fields:
        return CONSUMER_TYPES
    if "/allocations" in one.path and "mappings" in fields:
        return MAPPINGS
    return LEAST[kind(one)]


def _fields(body: object) -> set[str]:
    """The names of a body's fields, and of those of its parts."""
    if not isinstance(body, Mapping):
        return set()
    return {*body, *(name for part in body.values() if isinstance(part, Mapping) for name in part)}
