"""The answers of Placement, and their documented bodies: a type for each body, checked while it is
decoded; undocumented fields are dropped.

Source: the reference of Placement's API, and the limits of the database columns that hold the
values.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Annotated, Any, TypedDict, TypeVar, cast

import msgspec
from msgspec import Meta

from agent.errors import OUTAGE_STATUSES, PlacementRefused
from agent.model.inventory import MAX_INT
from agent.model.names import ConsumerUuid, ProviderUuid, printable
from agent.placement.unreachable import through_proxy

LARGEST = 2**63 - 1
# The number of characters of a path in a message.
LONGEST_PATH = 300
_OWNER = re.compile(r"((?:project|user)_id=)[^&]*")
_HEX = "[0-9A-Fa-f]"

Uuid = Annotated[
    ProviderUuid,
    Meta(pattern=rf"\A{_HEX}{{8}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{12}}\Z"),
]
# The writer of an allocation may spell the consumer in any way that Python's uuid accepts.
Consumer = Annotated[ConsumerUuid, Meta(pattern=r"\A[0-9A-Za-z:{}-]{32,45}\Z")]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Token = Annotated[str, Meta(pattern=r"\A[A-Z0-9_]{1,255}\Z")]
Owner = Annotated[str, Meta(max_length=255)]
Generation = Annotated[int, Meta(ge=0, le=LARGEST)]
Amount = Annotated[int, Meta(ge=0, le=MAX_INT)]
Sum = Annotated[int, Meta(ge=0, le=LARGEST)]
Suffix = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]{0,64}\Z")]
Version = Annotated[str, Meta(pattern=r"\A[0-9]{1,4}\.[0-9]{1,4}\Z")]

Body = TypeVar("Body")


class NotDocumented(ValueError):
    """Raised for an answer that is not what Placement documents; the message names the field."""


class Row(msgspec.Struct, frozen=True, gc=False):
    """One provider in a list of providers."""

    uuid: Uuid
    name: Name
    generation: Generation
    parent_uuid: Uuid | None = msgspec.field(default=None, name="parent_provider_uuid")


class Rows(msgspec.Struct):
    """A list of providers."""

    resource_providers: list[Row]


class InventoryRecord(TypedDict):
    """The inventory of one class on a provider."""

    total: Amount
    reserved: Amount
    min_unit: Amount
    max_unit: Amount
    step_size: Amount
    allocation_ratio: float


class InventoriesBody(msgspec.Struct):
    """The inventories of a provider, by class."""

    generation: Generation = msgspec.field(name="resource_provider_generation")
    inventories: dict[Token, InventoryRecord]


class TraitsBody(msgspec.Struct):
    """The traits of a provider."""

    generation: Generation = msgspec.field(name="resource_provider_generation")
    traits: frozenset[Token]


class AggregatesBody(msgspec.Struct):
    """The aggregates of a provider."""

    generation: Generation = msgspec.field(name="resource_provider_generation")
    aggregates: list[Uuid]


class TraitNames(msgspec.Struct):
    """A list of trait names."""

    traits: list[Token]


class UsagesBody(msgspec.Struct):
    """The allocated amount by class."""

    usages: dict[Token, Sum]


class HeldByConsumer(msgspec.Struct):
    """The allocation of one consumer on a provider."""

    resources: dict[Token, Amount]
    consumer_generation: Generation


class HoldersBody(msgspec.Struct):
    """The allocations on a provider, by consumer."""

    allocations: dict[Consumer, HeldByConsumer]


class HeldOfProvider(msgspec.Struct):
    """The allocation of a consumer on one provider."""

    resources: dict[Token, Amount]
    generation: Generation


class AllocationBody(msgspec.Struct):
    """All allocations of a consumer. Without any, Placement leaves the other fields out."""

    allocations: dict[Uuid, HeldOfProvider]
    project_id: Owner = ""
    user_id: Owner = ""
    consumer_generation: Generation | None = None
    consumer_type: Owner | None = None


class RequestedResources(TypedDict):
    """The amounts that a candidate allocates on one provider."""

    resources: dict[Token, Amount]


class _Candidate(TypedDict):
    allocations: dict[Uuid, RequestedResources]


class Candidate(_Candidate, total=False):
    """One allocation candidate; its allocations are written back unchanged."""

    mappings: dict[Suffix, list[Uuid]]


class Capacity(msgspec.Struct):
    """Capacity and usage of one class on a provider."""

    capacity: Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]
    used: Sum


class Summary(msgspec.Struct):
    """A provider in a tree of which a candidate uses some provider."""

    resources: dict[Token, Capacity]
    traits: frozenset[Token]
    parent_provider_uuid: Uuid | None
    root_provider_uuid: Uuid


class CandidatesBody(msgspec.Struct):
    """The allocation candidates, and the providers of their trees."""

    allocation_requests: list[Candidate]
    provider_summaries: dict[Uuid, Summary]


class OfferedVersion(msgspec.Struct):
    """The highest microversion of one version of the API."""

    max_version: Version


class Errors(msgspec.Struct):
    """The form of Placement's error answers."""

    errors: Annotated[list[dict[str, Any]], Meta(min_length=1)]


class Versions(msgspec.Struct):
    """The answer of the API's root."""

    versions: Annotated[list[OfferedVersion], Meta(min_length=1)]


_DECODERS: Mapping[type, msgspec.json.Decoder[Any]] = {
    # All before a thread needs one: msgspec describes a type to itself when it is used for the
    # first time, and a thread that uses it at that moment crashes the process.
    kind: msgspec.json.Decoder(kind)
    for kind in (
        Row,
        Rows,
        InventoriesBody,
        TraitsBody,
        AggregatesBody,
        TraitNames,
        UsagesBody,
        HoldersBody,
        AllocationBody,
        CandidatesBody,
        Errors,
        Versions,
    )
}


def decode(content: bytes, kind: type[Body]) -> Body:
    """Return the decoded body of an answer.

    :raises NotDocumented: the body is not a ``kind``.
    """
    try:
        return cast(Body, _DECODERS[kind].decode(content))
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise NotDocumented(printable(str(error))) from error


def check_tree(rows: Sequence[Row], member: ProviderUuid) -> None:
    """Check that ``rows`` are the whole tree that holds ``member``, or empty.

    :raises NotDocumented: a provider or a name occurs twice, a parent is missing, a provider is its
        own ancestor, there are several roots, or ``member`` is missing.
    """
    parents: Mapping[ProviderUuid, ProviderUuid | None] = {
        row.uuid: row.parent_uuid for row in rows
    }
    if len(parents) != len(rows):
        raise NotDocumented("a provider comes twice")
    if len({row.name for row in rows}) != len(rows):
        raise NotDocumented("two providers have one name")
    if rows and member not in parents:
        raise NotDocumented(f"the tree lacks {member}, which was asked for")
    reached: set[ProviderUuid] = set()
    roots = 0
    for row in rows:
        way: list[ProviderUuid] = []
        at: ProviderUuid | None = row.uuid
        while at is not None and at not in reached:
            if at not in parents:
                raise NotDocumented(f"the parent {at} is not in the tree")
            reached.add(at)
            way.append(at)
            at = parents[at]
        if at is None:
            roots += 1
        elif at in way:
            raise NotDocumented(f"{at} is above itself")
    if roots > 1:
        raise NotDocumented("the tree has several roots")


def age_of(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds before an answer that was written which it shows, by the clock of the
    server; None if it does not say.
    """
    try:
        written, now = (parsedate_to_datetime(headers[key]) for key in ("Last-Modified", "Date"))
        return (now - written).total_seconds()
    except (KeyError, TypeError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class PlacementAnswer:
    """The answer of the service at ``endpoint`` to one request."""

    endpoint: str
    method: str
    path: str
    status: int
    content: bytes
    """The body, after decompression."""
    request_id: str
    age: float | None = None
    """How many seconds before the answer that was written which it shows, by the server's clock;
    None if the server does not say.
    """

    @property
    def error(self) -> Mapping[str, Any]:
        """The first error of the body; empty if the body is not an error in Placement's form."""
        with suppress(NotDocumented):
            return decode(self.content, Errors).errors[0]
        return {}

    @property
    def own(self) -> bool:
        """Whether the error has Placement's documented form: then Placement itself refused the
        request, not something in front of it.
        """
        return self.error.get("status") == self.status

    @property
    def code(self) -> str:
        """Placement's error code, empty if the answer has none."""
        return printable(str(self.error.get("code") or ""))

    @property
    def line(self) -> str:
        """The request and its status for a log line."""
        return f"placement {self.method} {brief(self.path)} -> {self.status} {self.code}"

    def refusal(self, remedy: str = "") -> PlacementRefused:
        """Return the answer as an exception."""
        # The middleware that checks tokens, inside Placement too, has its own form of refusal.
        detail = self.error.get(
            "detail", "" if self.status == 401 else "an answer that is not Placement's own"
        )
        detail = printable(" ".join(str(detail).split()))
        said = f"{self.status} {self.code}".strip()
        message = f"placement {self.method} {brief(self.path)} -> {said} from {self.endpoint}" + (
            f": {detail}" if detail else ""
        )
        remedy = remedy or _remedy(self.status)
        if not self.own:
            message, remedy = through_proxy(self.endpoint, message, remedy)
        return PlacementRefused(
            message,
            remedy,
            status=self.status,
            placement_code=self.code,
            detail=str(self.error.get("detail", "")),
            request_id=self.request_id,
        )


def brief(path: str) -> str:
    """Return ``path`` shortened for a log line, without project and user ids.

    A query may hold a hundred names; the owner whose usages are read does not belong in a log.
    """
    shown = _OWNER.sub(r"\1...", printable(path))
    return shown if len(shown) <= LONGEST_PATH else f"{shown[:LONGEST_PATH]}..."


def _remedy(status: int) -> str:
    if status == 401:
        return "check the credentials in section [placement]"
    if status == 403:
        return (
            "give the account in [placement] what it lacks; reshapes need the role service "
            "(openstack role add)"
        )
    if status in (404, 406):
        return "check that [placement] endpoint_override or the catalog names a Placement service"
    if status == 413:
        return (
            "raise what limits the length of a request in front of Placement: limit-post of uWSGI, "
            "client_max_body_size of nginx, LimitRequestBody of Apache"
        )
    if status in OUTAGE_STATUSES or status >= 500:
        return "see the log of Placement, or of what stands in front of it"
    return ""
