"""A query for candidates: groups of what has to come from one place, and how the groups belong together."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from agent.model.names import is_token, is_uuid, normal_uuid
from agent.placement.allocations.checks import amount_problems, quoted

_SUFFIX = re.compile(r"[A-Za-z0-9_-]{1,64}")
POLICIES = ("none", "isolate")


@dataclass(frozen=True, slots=True)
class RequestGroup:
    """Amounts by class, and what the providers of them must be.

    ``suffix`` empty: the classes may come from several providers of one tree and from sharing ones; else all from one.
    ``member_of``: of each set in it, a provider is in one aggregate at least; ``not_member_of``: in none of these.
    """

    suffix: str = ""
    resources: Mapping[str, int] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    member_of: Sequence[frozenset[str]] = ()
    not_member_of: frozenset[str] = frozenset()
    in_tree: str | None = None

    def problems(self) -> Iterator[str]:
        """What is wrong with the group by itself."""
        if self.suffix and not _SUFFIX.fullmatch(self.suffix):
            yield f"{quoted(self.suffix)} is no suffix of a request group"
        for name, amount in self.resources.items():
            yield from amount_problems(name, amount)
        yield from trait_problems(self.required, self.forbidden)
        for one in sorted({*self.not_member_of, *(uuid for some in self.member_of for uuid in some)}):
            if not is_uuid(one):
                yield f"aggregate {quoted(one)} is no uuid"
        if self.in_tree is not None and not is_uuid(self.in_tree):
            yield f"provider {quoted(self.in_tree)} is no uuid"

    def pairs(self) -> Iterator[tuple[str, str]]:
        """The group's part of the query."""
        if self.resources:
            yield f"resources{self.suffix}", ",".join(f"{name}:{amount}" for name, amount in sorted(self.resources.items()))
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
    """All groups. ``policy`` says whether suffixed groups may share a provider; it has no default where there are two.

    ``same_subtree``: of each set of suffixes, one provider is at or above all others.
    """

    groups: Sequence[RequestGroup]
    policy: str | None = None
    same_subtree: Sequence[frozenset[str]] = ()
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    limit: int | None = None

    def problems(self) -> Iterator[str]:
        """Everything that Placement would refuse, and what can be told without it."""
        suffixes = [group.suffix for group in self.groups]
        for group in self.groups:
            yield from group.problems()
        for suffix in sorted({one for one in suffixes if suffixes.count(one) > 1}):
            yield f"request group {quoted(suffix)} stands there twice"
        if not any(group.resources for group in self.groups):
            yield "no resources are asked for"
        yield from self._policy_problems(len([one for one in suffixes if one]))
        together = {one for some in self.same_subtree for one in some}
        for one in sorted(together - {suffix for suffix in suffixes if suffix}):
            yield f"same_subtree names {quoted(one)}, which is no suffix of a request group"
        for group in self.groups:
            if not group.resources and group.suffix not in together:
                yield f"request group {quoted(group.suffix)} asks for no resources, and no same_subtree names it"
        yield from trait_problems(self.root_required, self.root_forbidden)
        if self.limit is not None and self.limit < 1:
            yield f"the limit {self.limit} is below 1"

    def _policy_problems(self, suffixed: int) -> Iterator[str]:
        if self.policy is not None and self.policy not in POLICIES:
            yield f"group_policy {quoted(self.policy)} is not one of {', '.join(POLICIES)}"
        if self.policy is None and suffixed > 1:
            yield f"two request groups with suffixes need a group_policy, {' or '.join(POLICIES)}"

    def encoded(self) -> str:
        """The query as it stands in the URL, sorted, so that one question has one form."""
        pairs = [pair for group in self.groups for pair in group.pairs()]
        pairs += [("same_subtree", ",".join(sorted(some))) for some in self.same_subtree]
        if self.policy is not None:
            pairs.append(("group_policy", self.policy))
        if self.root_required or self.root_forbidden:
            pairs.append(("root_required", traits_text(self.root_required, self.root_forbidden)))
        if self.limit is not None:
            pairs.append(("limit", str(self.limit)))
        return urlencode(sorted(pairs))


def trait_problems(required: Iterable[str], forbidden: Iterable[str]) -> Iterator[str]:
    """What is wrong with traits that must and must not be there."""
    for name in sorted({*required, *forbidden}):
        if not is_token(name):
            yield f"{quoted(name)} is no trait"
    for name in sorted({*required} & {*forbidden}):
        yield f"trait {quoted(name)} is both required and forbidden"


def traits_text(required: Iterable[str], forbidden: Iterable[str]) -> str:
    """Traits as a query has them."""
    return ",".join([*sorted(required), *(f"!{name}" for name in sorted(forbidden))])


def _uuids(some: Iterable[str]) -> str:
    return ",".join(sorted(normal_uuid(one) for one in some))
