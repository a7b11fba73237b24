"""A query for candidates in the API's own words, ``resources=VCPU:2`` and so on, as operators know them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agent.placement.allocations.candidate_query import CandidateQuery, RequestGroup
from agent.placement.allocations.checks import quoted, refuse

_GROUPED = re.compile(r"(resources|required|member_of|in_tree)([A-Za-z0-9_-]{0,64})")
KEYS = "resources, required, member_of, in_tree, group_policy, same_subtree, root_required, limit"


def parse_query(words: Iterable[str]) -> CandidateQuery:
    """The query that ``key=value`` words make.

    :raises BadRequest: everything in them that makes no sense by itself.
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
    """What the words so far came to."""

    query: CandidateQuery = field(default_factory=lambda: CandidateQuery(()))
    groups: dict[str, RequestGroup] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)

    def take(self, key: str, value: str) -> None:
        """Take one pair in."""
        if key in self.seen and not key.startswith(("member_of", "same_subtree")):
            self.wrong.append(f"{quoted(key)} is given twice")
        self.seen.add(key)
        if key == "root_required":
            required, forbidden = _traits(value)
            self.query = replace(self.query, root_required=required, root_forbidden=forbidden)
        elif key == "group_policy":
            self.query = replace(self.query, policy=value)
        elif key == "same_subtree":
            self.query = replace(self.query, same_subtree=(*self.query.same_subtree, frozenset(value.split(","))))
        elif key == "limit":
            self.query = replace(self.query, limit=self._number(value, f"limit={value}"))
        elif found := _GROUPED.fullmatch(key):
            kind, suffix = found.groups()
            self.groups[suffix] = self._grouped(self.groups.get(suffix, RequestGroup(suffix)), kind, value)
        else:
            self.wrong.append(f"{quoted(key)} is not one of {KEYS}")

    def _grouped(self, group: RequestGroup, kind: str, value: str) -> RequestGroup:
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
        # At most what Placement takes, because Python takes a number of any length and then its time.
        if text.isascii() and text.isdigit() and len(text) <= 10:
            return int(text)
        self.wrong.append(f"{quoted(where[:80])} has no whole number")
        return 1


def _traits(value: str) -> tuple[frozenset[str], frozenset[str]]:
    names = value.split(",")
    return frozenset(name for name in names if not name.startswith("!")), frozenset(name[1:] for name in names if name.startswith("!"))


def _aggregates(value: str) -> frozenset[str]:
    return frozenset(value.removeprefix("in:").split(","))
