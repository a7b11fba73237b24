"""Constraints of a query for allocation candidates, each of which can be left out by itself. Pure.

A group whose resources are all left out is left out whole, with its traits and aggregates.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from agent.model.names import number_of
from agent.placement.allocations.candidates import CandidateQuery, RequestGroup

ConstraintKind = Literal[
    "resource",
    "alias",
    "required-trait",
    "forbidden-trait",
    "aggregate",
    "not-aggregate",
    "tree",
    "root-required",
    "root-forbidden",
    "same-subtree",
    "isolate",
]
OF_ROOT: frozenset[ConstraintKind] = frozenset({"root-required", "root-forbidden"})


@dataclass(frozen=True, slots=True)
class Constraint:
    """One condition of a query."""

    kind: ConstraintKind
    suffixes: tuple[str, ...] = ()
    """The groups that have the condition: several for the devices of one alias."""
    name: str = ""
    """The class, trait or aggregates."""
    amount: int = 0
    """Of a class; of an alias, the number of devices."""
    alias: str = ""
    """The alias that requests the groups; empty for other groups."""

    @property
    def place(self) -> str:
        """The groups, in words; empty for the group without a suffix."""
        if self.alias:
            return f"alias {self.alias}"
        return f"group {', '.join(self.suffixes)}" if any(self.suffixes) else ""

    @property
    def text(self) -> str:
        """The constraint in words."""
        texts: Mapping[ConstraintKind, str] = {
            "resource": f"{self.name}:{self.amount}",
            "alias": f"{number_of(self.amount, 'device')} of {self.name}",
            "required-trait": f"trait {self.name} required",
            "forbidden-trait": f"trait {self.name} forbidden",
            "aggregate": f"member of {self.name}",
            "not-aggregate": f"not a member of {self.name}",
            "tree": f"in the tree of {self.name}",
            "root-required": f"trait {self.name} required of the root",
            "root-forbidden": f"trait {self.name} forbidden to the root",
            "same-subtree": f"groups {self.name} in the same subtree",
            "isolate": "each group on a provider of its own",
        }
        text = texts[self.kind]
        return f"{self.place}: {text}" if self.place and self.kind != "same-subtree" else text


def constraints_of(
    query: CandidateQuery, aliases: Mapping[str, str] | None = None
) -> list[Constraint]:
    """Return all constraints of the query. ``aliases``: suffix to alias; the groups of one alias
    are left out together.
    """
    aliases = aliases or {}
    together: dict[str, list[RequestGroup]] = defaultdict(list)
    for group in query.groups:
        together[f"alias {aliases[group.suffix]}" if group.suffix in aliases else group.suffix] += [
            group
        ]
    found = [
        constraint
        for groups in together.values()
        for constraint in _of_groups(groups, aliases.get(groups[0].suffix, ""))
    ]
    found += [Constraint("root-required", name=name) for name in sorted(query.root_required)]
    found += [Constraint("root-forbidden", name=name) for name in sorted(query.root_forbidden)]
    found += [
        Constraint("same-subtree", tuple(sorted(some)), ", ".join(sorted(some)))
        for some in query.same_subtree
    ]
    if query.policy == "isolate" and sum(bool(group.suffix) for group in query.groups) > 1:
        found.append(Constraint("isolate"))
    return found


def _of_groups(groups: list[RequestGroup], alias: str) -> Iterator[Constraint]:
    suffixes, first = tuple(group.suffix for group in groups), groups[0]
    if alias:
        name = ", ".join(sorted(first.resources))
        yield Constraint("alias", suffixes, name, len(groups), alias)
    else:
        for name, amount in sorted(first.resources.items()):
            yield Constraint("resource", suffixes, name, amount)
    for trait in sorted(first.required):
        yield Constraint("required-trait", suffixes, trait, alias=alias)
    for trait in sorted(first.forbidden):
        yield Constraint("forbidden-trait", suffixes, trait, alias=alias)
    for some in first.member_of:
        yield Constraint("aggregate", suffixes, " or ".join(sorted(some)), alias=alias)
    if first.not_member_of:
        name = " and ".join(sorted(first.not_member_of))
        yield Constraint("not-aggregate", suffixes, name, alias=alias)
    if first.in_tree is not None:
        yield Constraint("tree", suffixes, first.in_tree, alias=alias)


def without_constraints(
    query: CandidateQuery, left_out: Collection[Constraint]
) -> CandidateQuery | None:
    """Return the query without these constraints; None if it requests no resources then, which
    cannot be asked.
    """
    kept = {
        group.suffix: shown
        for group in query.groups
        if (shown := _group_without(group, left_out)) is not None
    }
    subtrees = [
        some & kept.keys()
        for some in query.same_subtree
        if Constraint("same-subtree", tuple(sorted(some)), ", ".join(sorted(some))) not in left_out
    ]
    subtrees = [some for some in subtrees if len(some) > 1]
    named = frozenset[str]().union(*subtrees)
    groups = [group for group in kept.values() if group.resources or group.suffix in named]
    there = {group.suffix for group in groups}
    if not any(group.resources for group in groups):
        return None
    traits = {kind: _names(left_out, kind) for kind in OF_ROOT}
    return replace(
        query,
        groups=tuple(groups),
        policy="none" if Constraint("isolate") in left_out else query.policy,
        same_subtree=tuple(some for some in subtrees if some <= there),
        root_required=query.root_required - traits["root-required"],
        root_forbidden=query.root_forbidden - traits["root-forbidden"],
    )


def _group_without(group: RequestGroup, left_out: Collection[Constraint]) -> RequestGroup | None:
    """Return the group without the constraints; None if nothing of its resources, or of the whole
    group, is left.
    """
    mine = [constraint for constraint in left_out if group.suffix in constraint.suffixes]
    if any(constraint.kind == "alias" for constraint in mine):
        return None
    gone = _names(mine, "resource")
    resources = {name: amount for name, amount in group.resources.items() if name not in gone}
    if group.resources and not resources:
        return None
    aggregates = _names(mine, "aggregate")
    changed = replace(
        group,
        resources=resources,
        required=group.required - _names(mine, "required-trait"),
        forbidden=group.forbidden - _names(mine, "forbidden-trait"),
        member_of=tuple(
            some for some in group.member_of if " or ".join(sorted(some)) not in aggregates
        ),
        not_member_of=frozenset() if _names(mine, "not-aggregate") else group.not_member_of,
        in_tree=None if _names(mine, "tree") else group.in_tree,
    )
    return changed if [*changed.pairs()] else None


def _names(constraints: Collection[Constraint], kind: ConstraintKind) -> frozenset[str]:
    return frozenset(constraint.name for constraint in constraints if constraint.kind == kind)
