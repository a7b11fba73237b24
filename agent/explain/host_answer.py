"""What the host says to a claim: granted or not, by the same functions as a real claim, and which
conditions of the request or of the host exclude the guest: the smallest sets without which it would
fit. Pure; claims nothing.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations
from typing import Generic, Literal, TypeVar

from agent.model.names import printable
from agent.numa.fit import NO_NETWORKS
from agent.numa.request import SIZED
from agent.pci.device_request import EXTRA_SPEC
from agent.tracker.claims import claim_instance
from agent.tracker.errors import ResourcesUnavailable, TrackerError
from agent.tracker.node_state import NodeState
from agent.tracker.stored_state import (
    ClaimLimits,
    InstanceClaim,
    PlannedChange,
    Resources,
    StoredState,
)

Condition = TypeVar("Condition", bound=Hashable)
# So many constraints at most are left out together, and so many sets at most are looked at.
MOST_TOGETHER = 5
MOST_SETS = 50_000


class BudgetSpent(Exception):
    """No more questions may be asked."""


@dataclass(frozen=True, slots=True)
class CorrectionSets(Generic[Condition]):
    """The result of a search."""

    sets: tuple[frozenset[Condition], ...]
    """All of one size: the smallest at which there is a set."""
    complete: bool
    """Whether every set of that size is there; False if the search was cut."""


def smallest_sets(
    conditions: Sequence[Condition],
    fits: Callable[[frozenset[Condition]], bool],
    unsatisfiable: Collection[frozenset[Condition]] = (),
) -> CorrectionSets[Condition]:
    """Return the smallest sets of ``conditions`` without which the request fits.

    ``fits``: whether the request fits without a set; it may raise :class:`BudgetSpent`.
    ``unsatisfiable``: of each of these sets, every result has a condition, as far as the caller
    knows.
    """
    # No question is asked twice.
    fit_without = cache(fits)
    found: list[frozenset[Condition]] = []
    try:
        if _search(conditions, fit_without, [*unsatisfiable], found):
            return CorrectionSets(tuple(found), complete=True)
        found.clear()
        # The caller was wrong about what is unsatisfiable.
        _search(conditions, fit_without, [], found)
    except BudgetSpent:
        # Each of them was checked before it was added.
        return CorrectionSets(tuple(found), complete=False)
    return CorrectionSets(tuple(found), complete=True)


def _search(
    conditions: Sequence[Condition],
    fit_without: Callable[[frozenset[Condition]], bool],
    unsatisfiable: Sequence[frozenset[Condition]],
    found: list[frozenset[Condition]],
) -> bool:
    """Add the smallest sets to ``found``, each once it is checked. Return whether every found set
    was confirmed.
    """
    for size in range(1, min(len(conditions), MOST_TOGETHER) + 1):
        for left_out in _sets(conditions, size, unsatisfiable):
            if not fit_without(left_out):
                continue
            if size > 1 and any(fit_without(left_out - {condition}) for condition in left_out):
                return False
            found.append(left_out)
        if found:
            break
    return True


def _sets(
    conditions: Sequence[Condition], size: int, unsatisfiable: Sequence[frozenset[Condition]]
) -> Iterator[frozenset[Condition]]:
    """Yield the sets of one size that have a condition of each unsatisfiable set."""
    for number, chosen in enumerate(combinations(conditions, size)):
        if number >= MOST_SETS:
            raise BudgetSpent
        left_out = frozenset(chosen)
        if all(left_out & some for some in unsatisfiable):
            yield left_out


MIB_IN_GIB = 1024
QUESTIONS = 200
"""How many claims are tried to find the conditions that exclude a guest."""
SETTINGS = (
    "cpu_policy",
    "cpu_dedicated_mask",
    "cpu_thread_policy",
    "cpu_realtime",
    "emulator_threads_policy",
    "mem_page_size",
    "locked_memory",
    "numa_nodes",
    "pci_numa_affinity_policy",
    "pmem",
)
"""Of flavor (``hw:``) and image (``hw_``)."""
NUMBERED = ("numa_cpus.", "numa_mem.")
HYPERTHREADING = "trait:HW_CPU_HYPERTHREADING"
LIMITS = ("memory_mb", "vcpus", "disk_mb", "cells")
STRICT = "[compute] numa_mode = strict"

HostConditionKind = Literal[
    "setting", "classes", "trait", "alias", "devices", "networks", "limit", "option"
]


@dataclass(frozen=True, slots=True)
class HostCondition:
    """A part of the request, or an option of the host, that can be left out by itself."""

    kind: HostConditionKind
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """The host's answer."""

    granted: PlannedChange | None = None
    """The claim that would be written; None if none would be granted."""
    candidate: int | None = None
    """Which of the scheduler's allocations was granted; None for a claim without allocations."""
    alone: bool = False
    """Whether the claim is granted without allocations."""
    reasons: tuple[str, ...] = ()
    """Why it is not granted."""
    remedy: str = ""
    excluded_by: CorrectionSets[HostCondition] = field(
        default_factory=lambda: CorrectionSets((), complete=True)
    )
    beyond_records: tuple[str, ...] = ()
    """What the guest asks more of than is free on record, although it is granted."""


def try_claim(
    state: NodeState, claim: InstanceClaim, allocations: Resources, now: float
) -> PlannedChange | TrackerError:
    """Return the change that the claim would write on the node, or the error that denies it."""
    asked = replace(claim, node=state.node.uuid, allocations=allocations)
    try:
        return claim_instance(state, StoredState(), asked, now)
    except TrackerError as error:
        return error


def host_answer(
    state: NodeState, claim: InstanceClaim, candidates: Sequence[Resources], now: float
) -> HostAnswer:
    """Return the host's answer. ``candidates``: the allocations that Placement offers, each of
    which is tried; without any, the claim is tried without allocations.
    """
    denied: list[TrackerError] = []
    for number, allocations in enumerate(candidates):
        answer = try_claim(state, claim, allocations, now)
        if isinstance(answer, PlannedChange):
            beyond = tuple(_beyond_records(state, answer))
            return HostAnswer(answer, number, alone=True, beyond_records=beyond)
        denied.append(answer)
    alone = try_claim(state, claim, {}, now)
    if isinstance(alone, PlannedChange):
        return HostAnswer(
            None if denied else alone,
            alone=True,
            reasons=tuple(_reasons(denied)),
            remedy=denied[0].remedy if denied else "",
            beyond_records=() if denied else tuple(_beyond_records(state, alone)),
        )
    return HostAnswer(
        reasons=tuple(_reasons([alone])),
        remedy=alone.remedy,
        excluded_by=_excluded_by(state, claim, now),
    )


def _beyond_records(state: NodeState, granted: PlannedChange) -> Iterator[str]:
    """Yield what the granted claim asks more of than the records leave of the host's totals."""
    amounts, used, node = granted.claim.amounts, state.used, state.node
    totals = (
        ("CPUs", amounts.vcpus, node.vcpus, used.vcpus),
        ("memory in MiB", amounts.memory_mb, node.memory_mb, used.memory_mb),
        (
            "disk in MiB",
            amounts.disk_mb,
            None if node.local_gb is None else node.local_gb * MIB_IN_GIB,
            used.disk_mb,
        ),
    )
    for what, asked, total, taken in totals:
        if total is not None and asked > total - taken:
            yield (
                f"{what}: {asked} asked, {total - taken} free on record (agent resources): "
                "a claim without limits may overcommit the host; what Placement has decides"
            )


def _reasons(errors: Sequence[TrackerError]) -> Iterator[str]:
    """Yield each reason once, in the order of the errors."""
    texts = (
        text
        for error in errors
        for text in (error.reasons if isinstance(error, ResourcesUnavailable) else (error.message,))
    )
    yield from dict.fromkeys(texts)


def _excluded_by(
    state: NodeState, claim: InstanceClaim, now: float
) -> CorrectionSets[HostCondition]:
    asked = 0

    def fits(left_out: frozenset[HostCondition]) -> bool:
        nonlocal asked
        if asked >= QUESTIONS:
            raise BudgetSpent
        asked += 1
        changed, relaxed = relax(state, claim, left_out)
        return isinstance(try_claim(changed, relaxed, {}, now), PlannedChange)

    return smallest_sets([*host_conditions(state, claim)], fits)


def host_conditions(state: NodeState, claim: InstanceClaim) -> Iterator[HostCondition]:
    """Yield the conditions of the claim and of the host that can be left out."""
    instance = claim.instance
    yield from _settings(instance.flavor.extra_specs, instance.image_properties)
    if claim.devices:
        yield HostCondition("devices", "devices", "the requested devices")
    if claim.networks != NO_NETWORKS:
        yield HostCondition("networks", "networks", "the networks of the ports")
    for name in LIMITS:
        if getattr(claim.limits, name) is not None:
            yield HostCondition("limit", name, f"the limit of {name}")
    if state.host.strict:
        yield HostCondition("option", STRICT, STRICT)


def _settings(specs: Mapping[str, str], properties: Mapping[str, str]) -> Iterator[HostCondition]:
    """Yield the conditions of flavor and image."""
    for name in SETTINGS:
        pairs = ((f"hw:{name}", specs), (f"hw_{name}", properties))
        if settings := [f"{key}={given[key]}" for key, given in pairs if given.get(key)]:
            yield HostCondition("setting", name, printable(", ".join(settings)))
    sized = [f"{key}={value}" for key, value in sorted(specs.items()) if SIZED.fullmatch(key)]
    if sized:
        yield HostCondition("classes", "resources", printable(", ".join(sized)))
    trait = specs.get(HYPERTHREADING) or properties.get(HYPERTHREADING)
    if trait:
        yield HostCondition("trait", HYPERTHREADING, printable(f"{HYPERTHREADING}={trait}"))
    for item in _alias_items(specs):
        yield HostCondition("alias", item, f"alias {printable(item)}")


def relax(
    state: NodeState, claim: InstanceClaim, left_out: Collection[HostCondition]
) -> tuple[NodeState, InstanceClaim]:
    """Return the node and the claim without these conditions."""
    names = {
        kind: frozenset(condition.name for condition in left_out if condition.kind == kind)
        for kind in {condition.kind for condition in left_out}
    }
    if "option" in names:
        state = replace(state, host=replace(state.host, strict=False))
    instance = claim.instance
    specs = _without_settings(instance.flavor.extra_specs, "hw:", names)
    if aliases := names.get("alias"):
        kept = [item for item in _alias_items(specs) if item not in aliases]
        specs = {name: value for name, value in specs.items() if name != EXTRA_SPEC} | (
            {EXTRA_SPEC: ",".join(kept)} if kept else {}
        )
    properties = _without_settings(instance.image_properties, "hw_", names)
    limits: ClaimLimits = replace(claim.limits, **dict.fromkeys(names.get("limit", ())))
    return state, replace(
        claim,
        instance=replace(
            instance,
            flavor=replace(instance.flavor, extra_specs=specs),
            image_properties=properties,
        ),
        limits=limits,
        devices=() if "devices" in names else claim.devices,
        networks=NO_NETWORKS if "networks" in names else claim.networks,
    )


def _without_settings(
    given: Mapping[str, str], start: str, names: Mapping[HostConditionKind, frozenset[str]]
) -> dict[str, str]:
    settings = names.get("setting", frozenset())
    gone = [start + name for name in settings]
    cells = [start + name for name in NUMBERED] if "numa_nodes" in settings else []
    return {
        key: value
        for key, value in given.items()
        if key not in gone
        and not any(key.startswith(name) for name in cells)
        and not ("classes" in names and SIZED.fullmatch(key))
        and not ("trait" in names and key == HYPERTHREADING)
    }


def _alias_items(specs: Mapping[str, str]) -> list[str]:
    items = [item.strip() for item in specs.get(EXTRA_SPEC, "").split(",")]
    return list(dict.fromkeys(item for item in items if item))
