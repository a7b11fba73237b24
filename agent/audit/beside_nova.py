"""The audit of a node that nova-compute manages, by an agent that only observes: the allocations of
its guests, and what nova-compute reports otherwise by its own rules.
"""

from collections.abc import Mapping
from dataclasses import replace

import os_traits

from agent.audit.allocations import offered_only_by, root_and_cells, running
from agent.audit.observation import (
    GuestAllocations,
    HoldersInTurn,
    Judged,
    Need,
    NovasWord,
    Observation,
    Reread,
)
from agent.model.names import ProviderUuid, name_first
from agent.model.operation import SetTraits
from agent.model.report import Drift
from agent.placement.plan import Plan
from agent.tracker.allocation_drift import holders_of_other_amounts
from agent.tracker.allocations import AllocationShare
from agent.tracker.guest_shares import GuestShares
from agent.tracker.observed_share import ObservedShare

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


def judge_beside_nova(seen: Observation) -> Judged | Need:
    """Compare the allocations of the node with its guests; nothing is removed."""
    tree, facts, records = seen.own_tree(), seen.facts, seen.records
    offering = tuple(uuid for uuid in tree.get_provider_uuids() if tree.has_inventory(uuid))
    guests = running(facts)
    # A driver that shows no guests says nothing of their allocations.
    if not offering or guests is None or records.state.host.guests is None:
        return Judged()
    turn = HoldersInTurn(offering, root_and_cells(tree, seen.root))
    if seen.lacks(turn):
        return turn
    holding = AllocationShare(
        records.node, seen.consumers(offering), offered_only_by(offering, seen.view.tree), guests
    )
    sharing = frozenset(root.uuid for root in seen.view.tree.roots) - {records.node}
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
