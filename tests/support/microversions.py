"""What microversion each request to Placement needs, as its API says, and at least the one from
which on errors have codes.
"""

import re
from collections.abc import Iterable, Mapping

from agent.model.names import ApiVersion
from tests.support.exchange import Exchange

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
