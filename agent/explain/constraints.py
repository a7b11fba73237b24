"""Constraints of a query for allocation candidates, each of which can be left out by itself, and
the view of a node's tree that they are compared with. Pure.

A group whose resources are all left out is left out whole, with its traits and aggregates.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Self

from agent.model.inventory import DEFAULTS, Record, capacity
from agent.model.names import ConsumerUuid, ProviderUuid, number_of
from agent.placement.allocations.candidates import CandidateQuery, RequestGroup


@dataclass(frozen=True, slots=True)
class ClassRoom:
    """How much of a class one provider can give to one request."""

    provider: "ProviderRoom"
    record: Record
    used: int

    @property
    def capacity(self) -> int:
        """The most that all guests together can have."""
        return capacity(self.record)

    @property
    def free(self) -> int:
        """What no guest has; below 0 if more is allocated than there is."""
        return self.capacity - self.used

    def broken_rules(self, amount: int) -> Iterator[str]:
        """Yield each rule of the inventory that the amount breaks, in words."""
        record = {**DEFAULTS, **self.record}
        if amount > self.free:
            yield f"{max(self.free, 0)} free of {self.capacity}"
        if amount < record["min_unit"]:
            yield f"min_unit {record['min_unit']}"
        if amount > record["max_unit"]:
            yield f"max_unit {record['max_unit']}"
        if amount % record["step_size"]:
            yield f"step_size {record['step_size']}"

    def most(self, amount: int) -> int:
        """Return the largest amount up to ``amount`` that the provider can give; 0 if none."""
        record = {**DEFAULTS, **self.record}
        least = min(amount, self.free, int(record["max_unit"]))
        least -= least % int(record["step_size"])
        return least if least >= max(int(record["min_unit"]), 1) else 0


@dataclass(frozen=True, slots=True)
class ProviderRoom:
    """One provider of the tree, or one that shares its resources with the tree."""

    uuid: ProviderUuid
    name: str
    inventory: Mapping[str, Record]
    used: Mapping[str, int]
    """What is allocated of each class."""
    traits: frozenset[str]
    sharing: bool = False
    """The provider is of another tree, and shares its resources."""
    holders: Mapping[ConsumerUuid, Mapping[str, int]] = field(default_factory=dict)
    """Consumer to class to amount; empty unless read."""

    def room(self, name: str) -> ClassRoom | None:
        """Return the provider's room of a class; None if the provider does not have the class."""
        record = self.inventory.get(name)
        return None if record is None else ClassRoom(self, record, self.used.get(name, 0))

    def after(self, consumer: ConsumerUuid) -> Self:
        """Return the provider without what a consumer holds of it."""
        gone = self.holders.get(consumer, {})
        used = {name: amount - gone.get(name, 0) for name, amount in self.used.items()}
        return replace(self, used=used)


@dataclass(frozen=True, slots=True)
class TreeView:
    """The tree of one node."""

    root: ProviderUuid
    providers: tuple[ProviderRoom, ...] = ()
    """Of the tree and those that share with it; empty if Placement does not have the tree."""

    @property
    def root_provider(self) -> ProviderRoom | None:
        """The root; None if Placement does not have the tree."""
        return next((provider for provider in self.providers if provider.uuid == self.root), None)

    def rooms(self, name: str) -> list[ClassRoom]:
        """Return the room of a class on each provider that has it."""
        found = (provider.room(name) for provider in self.providers)
        return [room for room in found if room is not None]

    def after(self, consumer: ConsumerUuid) -> Self:
        """Return the tree without what a consumer holds of it."""
        return replace(
            self, providers=tuple(provider.after(consumer) for provider in self.providers)
        )

    def shared_classes(self) -> frozenset[str]:
        """Return the classes that sharing providers of other trees have."""
        return frozenset(
            name for provider in self.providers if provider.sharing for name in provider.inventory
        )

    def offering(self, names: Iterable[str]) -> list[ProviderRoom]:
        """Return the providers that have one of the classes."""
        wanted = frozenset(names)
        return [provider for provider in self.providers if wanted & provider.inventory.keys()]

    def short_name(self, provider: ProviderRoom) -> str:
        """Return the provider's name without that of the node."""
        root = self.root_provider
        prefix = f"{root.name}_" if root is not None else ""
        name = provider.name
        return name.removeprefix(prefix) if prefix and len(name) > len(prefix) else name


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
