"""What would make a guest fit: guests to move away, and smaller or changed requests. Pure; which of
it was tested, and what is a guess, stands beside each suggestion.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import os_resource_classes as orc

from agent.explain.constraints import Constraint
from agent.explain.tree_view import TreeView
from agent.model.names import ConsumerUuid, number_of
from agent.placement.allocations.candidates import CandidateQuery
from agent.tracker.node_state import NodeState
from agent.tracker.requests import InstanceClaim
from agent.tracker.stored_state import StoredState
from agent.tracker.verdicts import give_back

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
    claim: InstanceClaim, lacking: Sequence[Constraint], view: TreeView
) -> Iterator[tuple[str, InstanceClaim]]:
    """Yield smaller guests that may fit, the largest of each kind first, with their description."""
    flavor = claim.instance.flavor
    fewer = {
        constraint.name: constraint.amount - most
        for constraint in lacking
        if constraint.kind == "resource"
        and (most := largest(constraint, view)) > 0
        and most < constraint.amount
    }
    cpus = max(fewer.get(orc.VCPU, 0), fewer.get(orc.PCPU, 0))
    sizes = [flavor.vcpus - cpus] if cpus else [flavor.vcpus * 3 // 4, flavor.vcpus // 2, 1]
    for vcpus in dict.fromkeys(sizes):
        memory = flavor.memory_mb - fewer.get(orc.MEMORY_MB, 0)
        disk = max(flavor.root_gb - fewer.get(orc.DISK_GB, 0), 0)
        if not 0 < vcpus <= flavor.vcpus or memory <= 0:
            continue
        smaller = replace(flavor, vcpus=vcpus, memory_mb=memory, root_gb=disk)
        if smaller != flavor:
            text = f"{number_of(vcpus, 'vCPU')}, {memory} MiB of memory, {disk} GiB of disk"
            yield text, replace(claim, instance=replace(claim.instance, flavor=smaller))


def largest(constraint: Constraint, view: TreeView) -> int:
    """Return the largest amount, up to that of the constraint, that one provider can give."""
    return max((room.most(constraint.amount) for room in view.rooms(constraint.name)), default=0)


def smaller_query(
    query: CandidateQuery, lacking: Sequence[Constraint], view: TreeView
) -> tuple[str, CandidateQuery] | None:
    """Return the query with the amounts that the providers can give, and its description; None if
    one of them can give nothing, or no amount is too large.
    """
    groups, texts = list(query.groups), []
    for constraint in lacking:
        if constraint.kind != "resource":
            return None
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
