"""The audit of a node that nova-compute manages, by an agent that only observes: the allocations of
its guests, and what nova-compute reports otherwise by its own rules.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import os_traits

from agent.audit.allocations import JudgedAllocations, offered_only_by, root_and_cells, running
from agent.audit.asked_nova import AskedNova
from agent.errors import AgentError
from agent.model.allocation import Allocation, Holdings
from agent.model.facts import HostFacts
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.operation import SetTraits
from agent.model.report import Drift
from agent.placement import clock
from agent.placement.client import ALLOCATIONS, CONSUMER_TYPES, PlacementClient
from agent.placement.node_state import NodePlacementState
from agent.placement.plan import Plan
from agent.tracker.allocation_drift import holders_of_other_amounts
from agent.tracker.allocations import AllocationShare
from agent.tracker.guest_shares import GuestShares
from agent.tracker.node_state import NodeView
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
                    f"the CPUs have {', '.join(sorted(unknown))}: nova-compute reports it "
                    "otherwise because it has no such feature in its table",
                    "none; nova-compute would remove the traits again",
                    root,
                )
            )
        if operation.new - unknown != operation.old:
            kept.append(replace(operation, new=operation.new - unknown))
    return replace(plan, operations=tuple(kept), drift=tuple(drift))


@dataclass(frozen=True, slots=True)
class _WholeAllocation:
    """All allocations of a consumer, as they were when they were read."""

    here: Holdings
    """What the consumer had of the node then; something else now means that it was written since.
    """
    found: Allocation | None
    read_at: float
    """Seconds since the epoch."""


@dataclass(slots=True)
class ObservedAllocations:
    """The allocations of one node, compared with its guests. Kept for the life of the process, so
    that a pass in which nothing changed reads no allocation.
    """

    placement_state: NodePlacementState
    refresh: float
    """Seconds in which every allocation is read again, one a pass; 0 for never."""
    nova: AskedNova
    _whole: dict[ConsumerUuid, _WholeAllocation] = field(default_factory=dict)

    def judged(
        self, client: PlacementClient, view: NodeView, facts: HostFacts
    ) -> JudgedAllocations:
        """Return the drift of the allocations. Never raises an :class:`AgentError`: the result has
        it.
        """
        try:
            return JudgedAllocations(drift=self._drift(client, view, facts))
        except AgentError as error:
            return JudgedAllocations(errors=(error,))

    def _drift(
        self, client: PlacementClient, view: NodeView, facts: HostFacts
    ) -> tuple[Drift, ...]:
        state = self.placement_state
        tree = state.own_tree()
        offering = [uuid for uuid in tree.get_provider_uuids() if tree.has_inventory(uuid)]
        guests = running(facts)
        # A driver that shows no guests says nothing of their allocations.
        if not offering or guests is None or view.state.host.guests is None:
            return ()
        consumers = state.consumers_in_turn(client, offering, root_and_cells(tree), self.refresh)
        holding = AllocationShare(
            view.node, consumers, offered_only_by(offering, state.view.tree), guests
        )
        sharing = frozenset(root.uuid for root in state.view.tree.roots) - {view.node}
        shares = GuestShares.of(view.state, facts, tree)
        share = ObservedShare(view, holding, {}, tree, sharing, shares, clock.now())
        # The known amounts may be outdated: giving back an allocation moves no generation.
        state.reread_allocations(
            client,
            {*holders_of_other_amounts(holding, share.records), *share.misplaced()},
            "amounts",
        )
        holding = replace(holding, consumers=state.consumers(client, offering))
        whole = self._read(client, holding, share.guests)
        holding = replace(holding, consumers=state.consumers(client, offering))
        found = replace(share, holding=holding, whole=whole)
        return self.nova.explained([*found.drift()], found)

    def _read(
        self,
        client: PlacementClient,
        holding: AllocationShare,
        guests: Iterable[ConsumerUuid],
    ) -> Mapping[ConsumerUuid, Allocation]:
        """Return all allocations of the consumers of ``holding`` and of ``guests``; those that were
        written since are read again, and in a pass without other requests the one that was read
        first.
        """
        now, wanted = clock.now(), holding.by_consumer().keys() | set(guests)
        held = {uuid: holding.of(uuid) for uuid in wanted}
        known = {
            uuid: whole
            for uuid, whole in self._whole.items()
            if uuid in wanted and held[uuid] == whole.here
        }
        due: Sequence[ConsumerUuid] = sorted(wanted - known.keys())
        if not due and known and self.refresh and sum(client.exchange.counts.values()) <= 1:
            oldest = min(known, key=lambda uuid: known[uuid].read_at)
            due = [oldest] if now - known[oldest].read_at >= self.refresh else []
        typed = self.placement_state.capabilities.offers(CONSUMER_TYPES)
        found = self.placement_state.allocations(
            client, due, CONSUMER_TYPES if typed else ALLOCATIONS
        )
        self._whole = known | {
            uuid: _WholeAllocation(held[uuid], found.get(uuid), now) for uuid in due
        }
        return {uuid: whole.found for uuid, whole in self._whole.items() if whole.found is not None}
