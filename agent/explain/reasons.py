"""Why a constraint of a query excludes a node, in numbers of its tree, and what would make the
guest fit. Pure.

A number concerns its own constraint: other constraints of the query may exclude more.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

import os_resource_classes as orc
import os_traits

from agent.explain.constraints import ClassRoom, Constraint, ProviderRoom, TreeView
from agent.model.names import ConsumerUuid, name_first, number_of, printable
from agent.pci.device_request import EXTRA_SPEC
from agent.placement.allocations.candidates import CandidateQuery, RequestGroup
from agent.tracker.node_state import NodeState
from agent.tracker.stored_state import InstanceClaim, StoredState
from agent.tracker.verdicts import give_back

CELL = re.compile(r"NUMA[0-9]+")
ON_ONE_CELL = " on one cell"


@dataclass(frozen=True, slots=True)
class Reason:
    """A constraint, and what of the tree does not meet it."""

    constraint: Constraint
    numbers: tuple[str, ...]
    """Texts; empty if each number by itself meets the constraint, and only the whole does not."""


def unsatisfiable(
    query: CandidateQuery, constraints: Sequence[Constraint], view: TreeView
) -> list[frozenset[Constraint]]:
    """Return sets of constraints, from each of which one has to be left out, whatever else is.

    A trait of a group with a single resource goes with the resource too.
    """
    found = []
    for constraint in constraints:
        if meets(constraint, query, view):
            continue
        beside = [
            other
            for other in constraints
            if other.kind in ("resource", "alias")
            and constraint.suffixes
            and other.suffixes == constraint.suffixes
        ]
        found.append(frozenset({constraint, *(beside if len(beside) == 1 else ())}))
    return found


def meets(constraint: Constraint, query: CandidateQuery, view: TreeView) -> bool:
    """Return whether some provider meets the constraint by itself. True if that cannot be told."""
    root, group = view.root_provider, _group_of(constraint, query)
    if constraint.kind == "root-required":
        return root is not None and constraint.name in root.traits
    if constraint.kind == "root-forbidden":
        return root is not None and constraint.name not in root.traits
    if constraint.kind == "resource":
        return any(
            not [*room.broken_rules(constraint.amount)] for room in view.rooms(constraint.name)
        )
    if constraint.kind == "alias":
        return largest(constraint, view) >= constraint.amount
    return group is None or not group.resources or _has_trait(constraint, group, view)


def _has_trait(constraint: Constraint, group: RequestGroup, view: TreeView) -> bool:
    """Return whether a provider that offers something of the group has the trait, or lacks it if it
    is forbidden. True for other constraints.
    """
    offering = view.offering(group.resources)
    if constraint.kind == "required-trait":
        return any(constraint.name in provider.traits for provider in offering)
    if constraint.kind == "forbidden-trait" and offering:
        return any(constraint.name not in provider.traits for provider in offering)
    return True


def reason_of(constraint: Constraint, query: CandidateQuery, view: TreeView) -> Reason:
    """Return why the tree does not meet the constraint, as far as numbers tell."""
    return Reason(constraint, tuple(_numbers(constraint, _group_of(constraint, query), view)))


def _group_of(constraint: Constraint, query: CandidateQuery) -> RequestGroup | None:
    """Return the group of the constraint, the first if there are several; None if it has none."""
    return next((group for group in query.groups if group.suffix in constraint.suffixes), None)


RATIOS = {
    orc.VCPU: "cpu_allocation_ratio",
    orc.MEMORY_MB: "ram_allocation_ratio",
    orc.DISK_GB: "disk_allocation_ratio",
}
"""The options for the ratios of the classes that can be overcommitted."""


def ratio_needed(constraint: Constraint, view: TreeView) -> tuple[str, float] | None:
    """Return the option for the ratio with which a class would have room, and its value; None if no
    ratio helps.
    """
    option = RATIOS.get(constraint.name)
    if option is None or constraint.kind != "resource":
        return None
    ratios = [
        ceil((room.used + constraint.amount) / base * 100) / 100
        for room in view.rooms(constraint.name)
        if (base := room.record["total"] - room.record.get("reserved", 0)) > 0
        and all("free of" in rule for rule in room.broken_rules(constraint.amount))
    ]
    return (option, min(ratios)) if ratios else None


def _numbers(constraint: Constraint, group: RequestGroup | None, view: TreeView) -> Iterator[str]:
    if not view.providers:
        return
    if constraint.kind == "resource":
        yield from _amount_numbers(constraint, view)
    elif constraint.kind == "alias":
        yield from _device_numbers(constraint, view)
    elif constraint.kind == "required-trait" and group is not None:
        yield from _required_numbers(constraint.name, group, view)
    elif constraint.kind == "forbidden-trait" and group is not None:
        having = [
            provider
            for provider in view.offering(group.resources)
            if constraint.name in provider.traits
        ]
        if having:
            yield f"{constraint.name} is on {_names(having, view)}"
    elif constraint.kind == "root-required":
        yield f"the node's root does not have {constraint.name}"
    elif constraint.name == os_traits.COMPUTE_STATUS_DISABLED:
        yield f"disabled: the node's root has {constraint.name}"
    elif constraint.kind == "root-forbidden":
        yield f"the node's root has {constraint.name}"


def _amount_numbers(constraint: Constraint, view: TreeView) -> Iterator[str]:
    name, amount, rooms = constraint.name, constraint.amount, view.rooms(constraint.name)
    if not rooms:
        yield f"{name}: no provider of the node has this class"
        return
    texts = [_room_text(room, amount, view) for room in rooms]
    yield (
        f"{name}: {amount} wanted{_of_what(rooms, view)}, {name_first(texts)}"
        + _fewer([room.most(amount) for room in rooms], amount)
    )
    if (free := free_together(constraint, view)) is not None:
        yield (
            f"nova's scheduler asks for all {name} of a guest in one group, which one provider has "
            f"to give; together they have {free} free"
        )


def free_together(constraint: Constraint, view: TreeView) -> int | None:
    """Return how much of a resource the cells have free together if that would be enough and no
    cell alone has enough; else None.
    """
    rooms = view.rooms(constraint.name)
    if constraint.kind != "resource" or not rooms or _of_what(rooms, view) != ON_ONE_CELL:
        return None
    free = sum(max(room.free, 0) for room in rooms)
    enough_alone = any(room.most(constraint.amount) >= constraint.amount for room in rooms)
    return free if free >= constraint.amount and not enough_alone else None


def _room_text(room: ClassRoom, amount: int, view: TreeView) -> str:
    """Return a provider with its figures: ``NUMA0 has 2 free of 12``."""
    figures = [f"{max(room.free, 0)} free of {room.capacity}"]
    figures += [rule for rule in room.broken_rules(amount) if "free of" not in rule]
    if reserved := room.record.get("reserved"):
        figures.append(f"{reserved} of {room.record['total']} reserved")
    return f"{view.short_name(room.provider)} has {', '.join(figures)}"


def _of_what(rooms: Sequence[ClassRoom], view: TreeView) -> str:
    if len(rooms) < 2:
        return ""
    cells = all(CELL.fullmatch(view.short_name(room.provider)) for room in rooms)
    return ON_ONE_CELL if cells else " of one provider"


def _fewer(most: Sequence[int], amount: int) -> str:
    best = max(most, default=0)
    return f"; {amount - best} fewer would do" if 0 < best < amount else ""


def _device_numbers(constraint: Constraint, view: TreeView) -> Iterator[str]:
    name, rooms = constraint.name, view.rooms(constraint.name)
    if not rooms:
        yield f"{name}: no provider of the node has this class"
        return
    texts = [_room_text(room, 1, view) for room in rooms]
    yield f"{name}: {constraint.amount} wanted, {name_first(texts)}" + _fewer(
        [largest(constraint, view)], constraint.amount
    )


def _required_numbers(name: str, group: RequestGroup, view: TreeView) -> Iterator[str]:
    offering = view.offering(group.resources)
    having = [provider for provider in view.providers if name in provider.traits]
    if not having:
        yield f"trait missing: no provider of the node has {name}"
    elif not any(provider in offering for provider in having):
        classes = " or ".join(sorted(group.resources))
        yield f"trait missing: {_names(having, view)} has {name}, and gives no {classes}"
    else:
        yield f"{name} is only on {_names(having, view)}"


def _names(providers: Sequence[ProviderRoom], view: TreeView) -> str:
    return name_first([view.short_name(provider) for provider in providers])


SuggestionKind = Literal["guests", "request", "option", "device"]
MOST_GUESTS = 50
"""So many guests at most are looked at."""
MOST_SINGLE = 3
"""So many guests at most are named of which each alone would do."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One change after which the guest would fit."""

    kind: SuggestionKind
    text: str
    guess: str = ""
    """What of it was not tested; empty if all was."""


def without_guest(state: NodeState, instance: ConsumerUuid, now: float) -> NodeState:
    """Return the node's state once the guest has given back all that it has there."""
    claims = state.claims_of(instance)
    held = {claim.id for claim in claims}
    stored = StoredState(
        claims=tuple(claims),
        devices=tuple(device for device in state.devices.values() if device.holder in held),
        units=tuple(unit for unit in state.units.values() if unit.holder in held),
    )
    return state.after(give_back(claims, stored, now))


def guests_to_move(
    guests: Sequence[ConsumerUuid], fits_without: Callable[[Sequence[ConsumerUuid]], bool]
) -> list[list[ConsumerUuid]]:
    """Return sets of guests without which the request fits: some single guests, or else one set of
    which every guest is needed. Empty if the guests make no difference.
    """
    guests = guests[:MOST_GUESTS]
    single: list[list[ConsumerUuid]] = []
    for guest in guests:
        if fits_without([guest]):
            single.append([guest])
            if len(single) == MOST_SINGLE:
                break
    if single or not guests or not fits_without(guests):
        return single
    needed = list(guests)
    for guest in guests:
        fewer = [other for other in needed if other != guest]
        if fits_without(fewer):
            needed = fewer
    return [needed]


def smaller_claims(
    claim: InstanceClaim,
    extra_specs: Mapping[str, str],
    lacking: Sequence[Constraint],
    view: TreeView,
) -> Iterator[tuple[str, InstanceClaim]]:
    """Yield smaller guests that may fit, those that change the least first, with their description.
    ``extra_specs``: those of the flavor, with no more devices than are free.

    What the tree cannot give goes down to what it can. If that is not enough, because the host
    wants less, the CPUs or the memory go down further, each alone. Nothing if no smaller guest
    would have what is lacking.
    """
    most = {constraint: largest(constraint, view) for constraint in lacking}
    if not all(most.values()):
        return
    flavor = claim.instance.flavor
    fewer = {
        constraint.name: constraint.amount - amount
        for constraint, amount in most.items()
        if constraint.kind == "resource"
    }
    vcpus = flavor.vcpus - max(fewer.get(orc.VCPU, 0), fewer.get(orc.PCPU, 0))
    memory = flavor.memory_mb - fewer.get(orc.MEMORY_MB, 0)
    least = replace(
        flavor,
        vcpus=vcpus,
        memory_mb=memory,
        root_gb=max(flavor.root_gb - fewer.get(orc.DISK_GB, 0), 0),
        extra_specs=extra_specs,
    )
    tried = [flavor]
    for smaller in (
        least,
        *(replace(least, vcpus=size) for size in (vcpus * 3 // 4, vcpus // 2, 1)),
        *(replace(least, memory_mb=memory * quarters // 4) for quarters in (3, 2, 1)),
    ):
        if smaller.vcpus < 1 or smaller.memory_mb < 1 or smaller in tried:
            continue
        tried.append(smaller)
        text = (
            f"{number_of(smaller.vcpus, 'vCPU')}, {smaller.memory_mb} MiB of memory, "
            f"{smaller.root_gb} GiB of disk"
        )
        if devices := extra_specs.get(EXTRA_SPEC):
            text += f", alias {printable(devices)}"
        yield text, replace(claim, instance=replace(claim.instance, flavor=smaller))


def largest(constraint: Constraint, view: TreeView) -> int:
    """Return the largest amount, up to that of the constraint, that one provider can give, or of an
    alias, that all providers together can give; 0 of what is no amount.
    """
    rooms = view.rooms(constraint.name)
    if constraint.kind == "resource":
        return max((room.most(constraint.amount) for room in rooms), default=0)
    if constraint.kind == "alias":
        free = sum(max(room.free, 0) for room in rooms if room.most(1))
        return min(free, constraint.amount)
    return 0


def smaller_query(
    query: CandidateQuery, lacking: Sequence[Constraint], view: TreeView
) -> tuple[str, CandidateQuery] | None:
    """Return the query with the amounts that the providers can give, and its description; None if
    one of them can give nothing, or no amount is too large.
    """
    groups, texts = list(query.groups), []
    for constraint in lacking:
        most = largest(constraint, view)
        if not most:
            return None
        if most == constraint.amount:
            continue
        texts.append(f"{constraint.name}:{most}")
        groups = [
            replace(group, resources={**group.resources, constraint.name: most})
            if group.suffix in constraint.suffixes
            else group
            for group in groups
        ]
    return (", ".join(texts), replace(query, groups=tuple(groups))) if texts else None
