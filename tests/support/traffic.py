"""Traffic in the notation of the specification: ``PUT inv R g7 -> 200`` instead of a path with a
uuid and a body.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from tests.support.exchange import Exchange

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
