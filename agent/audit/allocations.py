"""The allocations of a node under audit: judged by the records, with the removals of those that are
over; or, in an agent that only observes, by the guests of a node that nova-compute manages. Pure
functions of what the audit has read, which return what else they need to read.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import os_traits

from agent.audit.observation import (
    GuestAllocations,
    HeldElsewhere,
    HeldHere,
    HoldersInTurn,
    Holdings,
    Judged,
    Need,
    NovasWord,
    Observation,
    Reread,
    Shaped,
    TreeOf,
    WholeAllocations,
)
from agent.model.finding import Drift
from agent.model.inventory import Allocation
from agent.model.names import ConsumerUuid, ProviderUuid, name_first, printable
from agent.model.operation import SetTraits
from agent.model.provider_tree import ProviderTree
from agent.placement.plan import Plan
from agent.tracker.allocation_drift import (
    GuestShares,
    Remedies,
    allocation_drift,
    at_rest,
    holders_of_other_amounts,
    on_two_hosts,
)
from agent.tracker.allocations import (
    AllocationShare,
    Leftover,
    Removal,
    is_beside,
    is_used_elsewhere,
    judge_allocations,
    removal_operations,
)
from agent.tracker.observed_share import OF_NOVA, ObservedShare
from agent.tracker.stored_state import TreeConsumers


def needed_holdings(seen: Observation, shaped: Shaped) -> Holdings | None:
    """Return the need for who holds what of the providers of the node that are the agent's, now or
    once the shape is reached: a provider that is to be deleted keeps its allocations until then.
    None if it is known, or nothing is to be judged.
    """
    # No guest of a node that is new can be on record yet. What a tree that is taken over has of
    # others is told at once, but nothing is purged before guests could be imported.
    tells = seen.options.adopt and seen.policy.purge_after is None
    new = seen.records.created and not tells
    known = new or not seen.asks or seen.unjudged is not None
    if known or not seen.lacks(Holdings()):
        return None
    return Holdings(
        frozenset(seen.journal.providers.keys() | shaped.target.journal.providers.keys())
    )


# One value, so that an audit with the same shape has nothing new to remember.
NOTHING_TO_JUDGE = Judged()


def judge(seen: Observation) -> Judged | Need:
    """Return the verdict on every consumer of the node."""
    if seen.context.gives_back:
        # Nobody gains or loses anything: nova-compute judges them from now on.
        return NOTHING_TO_JUDGE
    if seen.unjudged is not None:
        return Judged(errors=(seen.unjudged,))
    if seen.context.observes:
        return _judge_beside_nova(seen)
    held: HeldHere | None = seen.answers.get(Holdings())
    if held is None or held.records is None:
        return NOTHING_TO_JUDGE
    if (judged := seen.verdict_again(held)) is not None:
        return judged
    holding = AllocationShare(
        seen.root,
        seen.consumers(held.providers),
        offered_only_by(held.offering, seen.view.tree),
        seen.running,
    )
    # The known amounts may be outdated: giving back an allocation moves no generation.
    records = held.records
    others = holders_of_other_amounts(holding, records)
    reread = Reread("amounts", frozenset(others))
    return reread if seen.needs_reread(reread) else _verdicts(seen, holding, held, records)


def _verdicts(
    seen: Observation, holding: AllocationShare, held: HeldHere, records: TreeConsumers
) -> Judged | Need:
    """Judge the consumers by the records; what is to be removed was just read again, because a
    change that moved no generation may have made a removal unnecessary.
    """
    purge_after = seen.policy.purge_after
    verdicts = judge_allocations(holding, records, seen.view.unknown_since, seen.now, purge_after)
    removals = [removal for removal in verdicts.removals if removal.consumer not in seen.tried]
    whole = WholeAllocations(
        "removals", tuple(removal.consumer for removal in removals), typed=True
    )
    if removals and seen.lacks(whole):
        return whole
    found: Mapping[ConsumerUuid, Allocation] = seen.answers.get(whole, {})
    leftovers = _leftovers(seen, removals, records, found, held.own)
    if isinstance(leftovers, Need):
        return leftovers
    confirmed, refuted = leftovers
    roots = [root.uuid for root in seen.view.tree.roots]
    twice = _on_two_hosts(seen, holding, records, frozenset({*held.own, *roots}))
    if isinstance(twice, Need):
        return twice
    others = _of_other_services(removals, found, holding.node)
    kept = [one for one in removals if one.consumer not in refuted.keys() | others.keys()]
    return Judged(
        operations=tuple(removal_operations(kept, found, held.own, roots)),
        drift=(
            # Without records the guests that run are told as guests.
            *(
                one
                for one in verdicts.drift
                if held.on_record
                or (holding.running is not None and one.consumer not in holding.running)
            ),
            *(
                leftover.otherwise
                for uuid, leftover in refuted.items()
                if uuid in found and not found[uuid].resources.keys().isdisjoint(held.own)
            ),
            *others.values(),
            *twice.values(),
            *allocation_drift(holding, records, _remedies(seen, holding)),
        ),
        cleared=verdicts.cleared.union(*(leftover.evacuations for leftover in refuted.values())),
        used_up={uuid: leftover.evacuations for uuid, leftover in confirmed.items()},
        unknown_since={**verdicts.unknown_since, **dict.fromkeys(twice, seen.now)},
    )


def _leftovers(
    seen: Observation,
    removals: Sequence[Removal],
    records: TreeConsumers,
    found: Mapping[ConsumerUuid, Allocation],
    own: Collection[ProviderUuid],
) -> tuple[Mapping[ConsumerUuid, Leftover], Mapping[ConsumerUuid, Leftover]] | Need:
    """Return the leftovers of evacuations among ``removals`` that are some, and those that are
    not.
    """
    confirmed = dict[ConsumerUuid, Leftover]()
    refuted = dict[ConsumerUuid, Leftover]()
    for removal in removals:
        if removal.leftover is None:
            continue
        is_leftover = _is_leftover(seen, removal, records, found, own)
        if isinstance(is_leftover, Need):
            return is_leftover
        (confirmed if is_leftover else refuted)[removal.consumer] = removal.leftover
    return confirmed, refuted


def _remedies(seen: Observation, holding: AllocationShare) -> Remedies:
    """Return how guests get an allocation, and how wrong ones are corrected."""

    def share() -> ObservedShare:
        tree, records = seen.own_tree(), seen.records
        shares = GuestShares.of(records.state, seen.facts, tree)
        return ObservedShare(records, holding, {}, tree, frozenset(), shares, seen.now)

    return Remedies(lambda guest: share().giving(guest), lambda guest: share().correcting(guest))


def _on_two_hosts(
    seen: Observation,
    holding: AllocationShare,
    records: TreeConsumers,
    own: frozenset[ProviderUuid],
) -> Mapping[ConsumerUuid, Drift] | Need:
    """Return the drift of the guests here that hold something of another host too. ``own``: the
    providers of the tree and those that share with it.
    """
    guests = at_rest(seen.facts.domains or (), records)
    doubted = seen.doubted & guests.keys()
    elsewhere = HeldElsewhere(frozenset(doubted & holding.by_consumer().keys()), own)
    if elsewhere.consumers and seen.lacks(elsewhere):
        return elsewhere
    found: Mapping[ConsumerUuid, Allocation] = seen.answers.get(elsewhere, {})
    return {
        uuid: on_two_hosts(guests[uuid], records.host, whole.resources.keys() - own)
        for uuid, whole in sorted(found.items())
    }


def _is_leftover(
    seen: Observation,
    removal: Removal,
    records: TreeConsumers,
    found: Mapping[ConsumerUuid, Allocation],
    own: Collection[ProviderUuid],
) -> bool | Need:
    """Whether a consumer holds something here beside what it holds on the node where it is counted:
    on the root there or, at the price of a request, below it.
    """
    leftover, allocation = removal.leftover, found.get(removal.consumer)
    assert leftover is not None
    if allocation is None or _may_be_removed(leftover, records, allocation):
        return False
    if is_beside(allocation, own, [leftover.node]) or (
        leftover.in_other_store and is_used_elsewhere(allocation, own)
    ):
        return True
    tree = TreeOf(leftover.node)
    if seen.lacks(tree):
        return tree
    return is_beside(allocation, own, [row.uuid for row in seen.answers[tree]])


def _of_other_services(
    removals: Sequence[Removal], found: Mapping[ConsumerUuid, Allocation], node: ProviderUuid
) -> Mapping[ConsumerUuid, Drift]:
    """Return the drift of the unknown consumers that are no guests: they stay."""
    return {
        uuid: Drift(
            "orphaned-allocation",
            "info",
            f"consumer {uuid} of type {printable(str(found[uuid].consumer_type))} is of another "
            "service, and stays: it is no guest",
            f"leave it if that service has it; else: agent allocation remove-tree {uuid} {node}",
            consumer=uuid,
        )
        for uuid in (removal.consumer for removal in removals if removal.unknown)
        if uuid in found and found[uuid].consumer_type not in OF_NOVA
    }


def _may_be_removed(leftover: Leftover, records: TreeConsumers, allocation: Allocation) -> bool:
    """Whether the leftover may have been removed already by a removal whose result is unknown, so
    that the present allocation came afterwards.
    """
    return any(
        evacuation.uuid in leftover.evacuations
        and evacuation.clearing not in (None, allocation.generation)
        for evacuation in records.evacuations
    )


def root_and_cells(tree: ProviderTree, root: ProviderUuid) -> frozenset[ProviderUuid]:
    """Return the root and its cells, of which every guest holds something."""
    cells = {
        uuid for uuid in tree.children(root) if os_traits.HW_NUMA_ROOT in tree.provider(uuid).traits
    }
    return frozenset({root, *cells})


def offered_only_by(ours: Collection[ProviderUuid], tree: ProviderTree) -> frozenset[str]:
    """Return the resource classes that only ``ours`` have, compared with all other providers of the
    tree, sharing ones included.
    """
    having = {True: set[str](), False: set[str]()}
    for provider in tree.providers():
        having[provider.uuid in ours] |= provider.inventory.keys()
    return frozenset(having[True] - having[False])


# Traits of CPUs that the agent derives from libvirt's features and that nova-compute does not know,
# or knows by another name of the feature.
NOT_REPORTED_BY_NOVA = frozenset(
    {
        os_traits.HW_CPU_X86_AMD_IBPB,
        os_traits.HW_CPU_X86_AMD_NO_SSB,
        os_traits.HW_CPU_X86_AMD_SSBD,
        os_traits.HW_CPU_X86_AMD_VIRT_SSBD,
        os_traits.HW_CPU_X86_INTEL_MD_CLEAR,
        os_traits.HW_CPU_X86_INTEL_PCID,
        os_traits.HW_CPU_X86_INTEL_SPEC_CTRL,
        os_traits.HW_CPU_X86_INTEL_SSBD,
        os_traits.HW_CPU_X86_PDPE1GB,
        os_traits.HW_CPU_X86_SGX,
        os_traits.HW_CPU_X86_SSE3,
        os_traits.HW_CPU_X86_STIBP,
        os_traits.HW_CPU_X86_TSX,
    }
)


def reported_by_nova(traits: Mapping[str, bool]) -> Mapping[str, bool]:
    """Return ``traits`` without those of CPUs that nova-compute does not know."""
    return {name: has for name, has in traits.items() if name not in NOT_REPORTED_BY_NOVA}


def without_novas_rules(plan: Plan, root: ProviderUuid) -> Plan:
    """Return ``plan`` without what nova-compute reports otherwise by its own rules; each such
    difference is drift for information.
    """
    kept, drift = [], list(plan.drift)
    for operation in plan.operations:
        if not isinstance(operation, SetTraits) or operation.provider.uuid != root:
            kept.append(operation)
            continue
        unknown = (operation.new - operation.old) & NOT_REPORTED_BY_NOVA
        if unknown:
            drift.append(
                Drift(
                    "reported-otherwise",
                    "info",
                    f"the CPUs have {name_first(sorted(unknown))}: nova-compute reports it "
                    "otherwise because it has no such feature in its table",
                    "none; nova-compute would remove the traits again",
                    root,
                )
            )
        if operation.new - unknown != operation.old:
            kept.append(replace(operation, new=operation.new - unknown))
    return replace(plan, operations=tuple(kept), drift=tuple(drift))


def _judge_beside_nova(seen: Observation) -> Judged | Need:
    """Compare the allocations of the node with its guests; nothing is removed."""
    tree, facts, records = seen.own_tree(), seen.facts, seen.records
    offering = tuple(uuid for uuid in tree.get_provider_uuids() if tree.has_inventory(uuid))
    guests = seen.running
    # A driver that shows no guests says nothing of their allocations.
    if not offering or guests is None or records.state.host.guests is None:
        return Judged()
    turn = HoldersInTurn(offering, root_and_cells(tree, seen.root))
    if seen.lacks(turn):
        return turn
    holding = AllocationShare(
        seen.root, seen.consumers(offering), offered_only_by(offering, seen.view.tree), guests
    )
    sharing = frozenset(root.uuid for root in seen.view.tree.roots) - {seen.root}
    shares = GuestShares.of(records.state, facts, tree)
    share = ObservedShare(records, holding, {}, tree, sharing, shares, seen.now)
    # The known amounts may be outdated: giving back an allocation moves no generation.
    others = holders_of_other_amounts(holding, share.records)
    reread = Reread("amounts", frozenset({*others, *share.misplaced()}))
    if seen.needs_reread(reread):
        return reread
    wanted = holding.by_consumer().keys() | share.guests.keys()
    whole = GuestAllocations({uuid: holding.of(uuid) for uuid in wanted})
    if seen.lacks(whole):
        return whole
    share = replace(share, whole=seen.answers[whole])
    word = NovasWord(share, tuple(share.drift()))
    return word if seen.lacks(word) else Judged(drift=seen.answers[word])
