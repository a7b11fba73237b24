"""Allocation candidates: the query, its text form, and Placement's answer."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

from agent.errors import PlacementRefused, PlacementTooOld
from agent.model.inventory import Holdings
from agent.model.mirror import ServerCapabilities
from agent.model.names import ApiVersion, ProviderUuid, is_token, is_uuid, normal_uuid
from agent.placement.allocations.checks import (
    CandidatesFailed,
    amount_problems,
    holdings_problems,
    normal_holdings,
    quoted,
    refuse,
)
from agent.placement.answers import Summary
from agent.placement.client import ALLOCATIONS, CANDIDATES, CONSUMER_TYPES, PlacementClient

_SUFFIX = re.compile(r"[A-Za-z0-9_-]{1,64}")
POLICIES = ("none", "isolate")


@dataclass(frozen=True, slots=True)
class RequestGroup:
    """One request group: amounts by class, and conditions on the providers of them.

    Without a ``suffix`` the classes may come from several providers of one tree and from sharing
    providers; with one, all come from a single provider.
    """

    suffix: str = ""
    resources: Mapping[str, int] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    member_of: Sequence[frozenset[str]] = ()
    """Of each set, a provider is in at least one aggregate."""
    not_member_of: frozenset[str] = frozenset()
    """A provider is in none of these aggregates."""
    in_tree: str | None = None

    def problems(self) -> Iterator[str]:
        """Yield the problems of the group by itself."""
        if self.suffix and not _SUFFIX.fullmatch(self.suffix):
            yield f"{quoted(self.suffix)} is no suffix of a request group"
        for name, amount in self.resources.items():
            yield from amount_problems(name, amount)
        yield from trait_problems(self.required, self.forbidden)
        for aggregate in sorted(
            {*self.not_member_of, *(uuid for some in self.member_of for uuid in some)}
        ):
            if not is_uuid(aggregate):
                yield f"aggregate {quoted(aggregate)} is no uuid"
        if self.in_tree is not None and not is_uuid(self.in_tree):
            yield f"provider {quoted(self.in_tree)} is no uuid"

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield the group's part of the query, as keys and values."""
        if self.resources:
            yield (
                f"resources{self.suffix}",
                ",".join(f"{name}:{amount}" for name, amount in sorted(self.resources.items())),
            )
        if self.required or self.forbidden:
            yield f"required{self.suffix}", traits_text(self.required, self.forbidden)
        for some in self.member_of:
            yield f"member_of{self.suffix}", f"in:{_uuids(some)}"
        if self.not_member_of:
            yield f"member_of{self.suffix}", f"!in:{_uuids(self.not_member_of)}"
        if self.in_tree is not None:
            yield f"in_tree{self.suffix}", normal_uuid(self.in_tree)


@dataclass(frozen=True, slots=True)
class CandidateQuery:
    """A query for allocation candidates."""

    groups: Sequence[RequestGroup]
    policy: str | None = None
    """Whether suffixed groups may share a provider; required if there are two such groups."""
    same_subtree: Sequence[frozenset[str]] = ()
    """Of each set of suffixes, one provider is at or above all the others."""
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    limit: int | None = None

    def problems(self) -> Iterator[str]:
        """Yield the problems that Placement would refuse and that show without asking it."""
        suffixes = [group.suffix for group in self.groups]
        for group in self.groups:
            yield from group.problems()
        for suffix in sorted({repeated for repeated in suffixes if suffixes.count(repeated) > 1}):
            yield f"request group {quoted(suffix)} stands there twice"
        if not any(group.resources for group in self.groups):
            yield "no resources are asked for"
        if self.policy is not None and self.policy not in POLICIES:
            yield f"group_policy {quoted(self.policy)} is not one of {', '.join(POLICIES)}"
        if self.policy is None and sum(map(bool, suffixes)) > 1:
            yield f"two request groups with suffixes need a group_policy, {' or '.join(POLICIES)}"
        together = set[str]().union(*self.same_subtree)
        for suffix in sorted(together - {suffix for suffix in suffixes if suffix}):
            yield f"same_subtree names {quoted(suffix)}, which is no suffix of a request group"
        for group in self.groups:
            if not group.resources and group.suffix not in together:
                yield (
                    f"request group {quoted(group.suffix)} asks for no resources, and no "
                    "same_subtree names it"
                )
        yield from trait_problems(self.root_required, self.root_forbidden)
        if self.limit is not None and self.limit < 1:
            yield f"the limit {self.limit} is below 1"

    def encoded(self) -> str:
        """Return the query string, sorted, so that equal queries have equal texts."""
        return urlencode(self.pairs())

    def pairs(self) -> list[tuple[str, str]]:
        """Return the query as keys and values, sorted."""
        pairs = [pair for group in self.groups for pair in group.pairs()]
        pairs += [("same_subtree", ",".join(sorted(some))) for some in self.same_subtree]
        if self.policy is not None:
            pairs.append(("group_policy", self.policy))
        if self.root_required or self.root_forbidden:
            pairs.append(("root_required", traits_text(self.root_required, self.root_forbidden)))
        if self.limit is not None:
            pairs.append(("limit", str(self.limit)))
        return sorted(pairs)


def trait_problems(required: Iterable[str], forbidden: Iterable[str]) -> Iterator[str]:
    """Yield the problems of required and forbidden traits."""
    for name in sorted({*required, *forbidden}):
        if not is_token(name):
            yield f"{quoted(name)} is no trait"
    for name in sorted({*required} & {*forbidden}):
        yield f"trait {quoted(name)} is both required and forbidden"


def traits_text(required: Iterable[str], forbidden: Iterable[str]) -> str:
    """Return traits in the form of a query."""
    return ",".join([*sorted(required), *(f"!{name}" for name in sorted(forbidden))])


def _uuids(uuids: Iterable[str]) -> str:
    return ",".join(sorted(normal_uuid(uuid) for uuid in uuids))


_VERSION = re.compile(r"1\.[0-9]{1,4}")


@dataclass(frozen=True, slots=True)
class AllocationRequest:
    """One allocation request of a candidate.

    It is written back unchanged and with its microversion, because an older one refuses its
    ``mappings``.
    """

    body: Mapping[str, Any]
    """The candidate as it was read, with at least ``allocations``."""
    version: str
    """The microversion that it was read with."""

    @property
    def resources(self) -> Holdings:
        """The requested amounts. Valid only for a request without :meth:`problems`."""
        return normal_holdings(
            {uuid: entry["resources"] for uuid, entry in self.body["allocations"].items()}
        )

    def problems(self) -> Iterator[str]:
        """Yield the reasons why the request cannot be claimed."""
        if not _VERSION.fullmatch(self.version):
            yield f"{self.version!r} is no microversion"
        elif ApiVersion.of(self.version) < ApiVersion.of(ALLOCATIONS):
            yield (
                f"an allocation request of microversion {self.version} is too old, it takes "
                f"{ALLOCATIONS}"
            )
        allocations = self.body.get("allocations")
        if not isinstance(allocations, Mapping) or not allocations:
            yield "an allocation request names no provider"
        elif not all(isinstance(entry, Mapping) for entry in allocations.values()):
            yield "an allocation request has no resources for a provider"
        else:
            yield from holdings_problems(
                {uuid: entry.get("resources") for uuid, entry in allocations.items()}
            )

    @property
    def needs_type(self) -> bool:
        """Whether it can be written only with a consumer type."""
        return ApiVersion.of(self.version) >= ApiVersion.of(CONSUMER_TYPES)


@dataclass(frozen=True, slots=True)
class ProviderSummary:
    """A provider of a tree of which a candidate uses some provider."""

    capacity: Mapping[str, int]
    """By class."""
    used: Mapping[str, int]
    """By class."""
    traits: frozenset[str]
    parent_uuid: ProviderUuid | None
    root_uuid: ProviderUuid


@dataclass(frozen=True, slots=True)
class Candidates:
    """The answer to a query: candidates, none if no host fits, and all providers of their trees."""

    requests: Sequence[AllocationRequest]
    summaries: Mapping[ProviderUuid, ProviderSummary]
    version: str


def check_candidates_offered(capabilities: ServerCapabilities) -> None:
    """Check that the server answers queries for candidates as the agent sends them.

    :raises PlacementTooOld: it does not.
    """
    if not capabilities.offers(CANDIDATES):
        raise PlacementTooOld(
            f"candidates need placement {CANDIDATES}, server offers {capabilities.max_version}",
            "upgrade Placement",
        )


def candidates(client: PlacementClient, query: CandidateQuery) -> Candidates:
    """Read the allocation candidates for ``query``; an empty answer is no error.

    :raises BadRequest: the query is invalid.
    :raises CandidatesFailed: Placement refused it, for example for an unknown class or trait.
    """
    refuse(query.problems())
    try:
        body = client.candidates(query.encoded())
    except PlacementRefused as error:
        if error.status != 400:
            raise
        raise CandidatesFailed(f"no candidates: {error.message}", "correct the query") from error
    requests = tuple(AllocationRequest(request, CANDIDATES) for request in body.allocation_requests)
    return Candidates(
        requests,
        {uuid: _summary(entry) for uuid, entry in body.provider_summaries.items()},
        CANDIDATES,
    )


def _summary(entry: Summary) -> ProviderSummary:
    return ProviderSummary(
        {name: amounts.capacity for name, amounts in entry.resources.items()},
        {name: amounts.used for name, amounts in entry.resources.items()},
        entry.traits,
        entry.parent_provider_uuid,
        entry.root_provider_uuid,
    )


_GROUPED = re.compile(r"(resources|required|member_of|in_tree)([A-Za-z0-9_-]{0,64})")
KEYS = "resources, required, member_of, in_tree, group_policy, same_subtree, root_required, limit"


def parse_query(words: Iterable[str]) -> CandidateQuery:
    """Return the query given by words of the form ``key=value``.

    :raises BadRequest: a word is invalid by itself; the message lists all of them.
    """
    reading = _QueryParser()
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not value:
            reading.wrong.append(f"{quoted(word)} is not of the form key=value")
        else:
            reading.take(key, value)
    refuse(reading.wrong)
    return replace(reading.query, groups=tuple(reading.groups.values()))


@dataclass(slots=True)
class _QueryParser:
    """The state of parsing ``key=value`` words."""

    query: CandidateQuery = field(default_factory=lambda: CandidateQuery(()))
    groups: dict[str, RequestGroup] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)

    def take(self, key: str, value: str) -> None:
        """Add one pair."""
        if key in self.seen and not key.startswith(("member_of", "same_subtree")):
            self.wrong.append(f"{quoted(key)} is given twice")
        self.seen.add(key)
        if key == "root_required":
            required, forbidden = _traits(value)
            self.query = replace(self.query, root_required=required, root_forbidden=forbidden)
        elif key == "group_policy":
            self.query = replace(self.query, policy=value)
        elif key == "same_subtree":
            self.query = replace(
                self.query, same_subtree=(*self.query.same_subtree, frozenset(value.split(",")))
            )
        elif key == "limit":
            self.query = replace(self.query, limit=self._number(value, f"limit={value}"))
        elif found := _GROUPED.fullmatch(key):
            kind, suffix = found.groups()
            self.groups[suffix] = self._with_part(
                self.groups.get(suffix, RequestGroup(suffix)), kind, value
            )
        else:
            self.wrong.append(f"{quoted(key)} is not one of {KEYS}")

    def _with_part(self, group: RequestGroup, kind: str, value: str) -> RequestGroup:
        changed: dict[str, Any] = {}
        if kind == "resources":
            changed["resources"] = self._resources(value.split(","))
        elif kind == "required":
            changed["required"], changed["forbidden"] = _traits(value)
        elif kind == "in_tree":
            changed["in_tree"] = value
        elif value.startswith("!"):
            changed["not_member_of"] = group.not_member_of | _aggregates(value[1:])
        else:
            changed["member_of"] = (*group.member_of, _aggregates(value))
        return replace(group, **changed)

    def _resources(self, parts: Sequence[str]) -> dict[str, int]:
        amounts: dict[str, int] = {}
        for part in parts:
            name, _, amount = part.partition(":")
            if name in amounts:
                self.wrong.append(f"{quoted(name)} is given twice in one request group")
            amounts[name] = self._number(amount, part)
        return amounts

    def _number(self, text: str, where: str) -> int:
        # At most ten digits, the largest number of Placement, because Python spends long on
        # converting a number with very many digits.
        if text.isascii() and text.isdigit() and len(text) <= 10:
            return int(text)
        self.wrong.append(f"{quoted(where[:80])} has no whole number")
        return 1


def _traits(value: str) -> tuple[frozenset[str], frozenset[str]]:
    names = value.split(",")
    return frozenset(name for name in names if not name.startswith("!")), frozenset(
        name[1:] for name in names if name.startswith("!")
    )


def _aggregates(value: str) -> frozenset[str]:
    return frozenset(value.removeprefix("in:").split(","))
