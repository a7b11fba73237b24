"""The allocations of a node under audit: read them where they may have changed, judge them by the
records, and plan removals.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import os_traits

from agent.errors import AgentError
from agent.model.allocation import Allocation
from agent.model.facts import HostFacts
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.operation import AllocationOperation, Reshape
from agent.model.provider_tree import ProviderTree
from agent.model.report import Drift
from agent.placement import clock
from agent.placement.client import PlacementClient
from agent.placement.node_state import NodePlacementState
from agent.placement.plan import Plan
from agent.tracker.allocation_drift import allocation_drift, holders_of_other_amounts
from agent.tracker.allocations import (
    AllocationShare,
    Leftover,
    is_beside,
    is_used_elsewhere,
    judge_allocations,
    removal_operations,
)
from agent.tracker.consumer_records import ConsumerRecords
from agent.tracker.node_state import NodeView


@dataclass(frozen=True, slots=True)
class JudgedAllocations:
    """Result of judging the node's allocations."""

    operations: tuple[AllocationOperation, ...] = ()
    """Removals to send."""
    drift: tuple[Drift, ...] = ()
    errors: tuple[AgentError, ...] = ()
    """Why the allocations could not be judged; the audit goes on without."""
    cleared: frozenset[ConsumerUuid] = frozenset()
    """Evacuations that have nothing left on this node."""
    used_up: Mapping[ConsumerUuid, frozenset[ConsumerUuid]] = field(default_factory=dict)
    """By consumer to remove: the evacuations that have nothing left here once it is removed."""

    def added_to(self, plan: Plan) -> Plan:
        """Return ``plan`` with drift and removals added at its end.

        Removals are left out beside a reshape, which may concern the same consumers: then the next
        pass removes them.
        """
        removals = (
            () if any(isinstance(one, Reshape) for one in plan.operations) else self.operations
        )
        return replace(
            plan, operations=(*plan.operations, *removals), drift=(*plan.drift, *self.drift)
        )


@dataclass(frozen=True, slots=True)
class NodeAllocations:
    """The allocations of one node."""

    placement_state: NodePlacementState
    consumer_records: ConsumerRecords
    view: NodeView
    """What was counted of the node."""
    purge_after: float | None = None
    """Seconds after which unknown consumers are removed, as :func:`judge_allocations` takes it;
    None for never.
    """
    refresh: float = 0
    """Seconds in which the consumers of the root and its cells are all asked for again, 0 for
    never.
    """

    def judged(
        self,
        client: PlacementClient,
        owned: Collection[str],
        facts: HostFacts,
        tried: Collection[ConsumerUuid],
    ) -> JudgedAllocations:
        """Judge every consumer of the ``owned`` providers. Never raises an :class:`AgentError`: the
        result has it.

        ``tried``: consumers that an earlier attempt of this pass could not remove.
        """
        try:
            if not self.consumer_records.is_needed(self.view, purging=self.purge_after is not None):
                return JudgedAllocations()
            return self._judged(client, owned, facts, tried)
        except AgentError as error:
            return JudgedAllocations(errors=(error,))

    def _judged(
        self,
        client: PlacementClient,
        owned: Collection[str],
        facts: HostFacts,
        tried: Collection[ConsumerUuid],
    ) -> JudgedAllocations:
        """Judge the consumers, as :meth:`judged`; read again what a removal depends on.

        :raises AgentError: the records, the mirror or Placement cannot be read.
        """
        tree = self.placement_state.own_tree()
        ours = [
            uuid for uuid in tree.get_provider_uuids() if uuid in owned and tree.has_inventory(uuid)
        ]
        if not ours:
            return JudgedAllocations()
        consumers = self.placement_state.consumers_in_turn(
            client, ours, _in_turn(tree), self.refresh
        )
        records = self.consumer_records.read(
            self.view, {consumer for held in consumers.values() for consumer in held}
        )
        holding = AllocationShare(
            self.view.node,
            consumers,
            _offered(self.placement_state.view.tree, ours),
            _running(facts),
        )
        verdicts = judge_allocations(
            holding, records, self.placement_state.view.unknown_since, clock.now(), self.purge_after
        )
        self.placement_state.remember_unknown(verdicts.unknown_since)
        # The known amounts may be outdated: giving back an allocation moves no generation.
        self.placement_state.reread_allocations(
            client, holders_of_other_amounts(holding, records), "amounts"
        )
        removals = [one for one in verdicts.removals if one.consumer not in tried]
        # Read again, because a change that moved no generation may have made the removal
        # unnecessary.
        found = self.placement_state.allocations(client, [one.consumer for one in removals])
        own = tree.get_provider_uuids()
        leftovers = {one.consumer: one.leftover for one in removals if one.leftover is not None}
        doubtful = {
            one.uuid: one.clearing for one in records.evacuations if one.clearing is not None
        }
        no_leftovers = {
            uuid: one
            for uuid, one in leftovers.items()
            if uuid not in found
            or _may_be_removed(one, doubtful, found[uuid])
            or not self._is_leftover(client, found[uuid], own, one)
        }
        removals = [one for one in removals if one.consumer not in no_leftovers]
        told = tuple(
            one.otherwise
            for uuid, one in no_leftovers.items()
            if uuid in found and not found[uuid].resources.keys().isdisjoint(own)
        )
        return JudgedAllocations(
            tuple(
                removal_operations(
                    removals, found, own, [one.uuid for one in self.placement_state.view.tree.roots]
                )
            ),
            (
                *verdicts.drift,
                *told,
                *allocation_drift(
                    replace(holding, consumers=self.placement_state.consumers(client, ours)),
                    records,
                ),
            ),
            cleared=verdicts.cleared.union(*(one.evacuations for one in no_leftovers.values())),
            used_up={
                uuid: one.evacuations for uuid, one in leftovers.items() if uuid not in no_leftovers
            },
        )

    @staticmethod
    def _is_leftover(
        client: PlacementClient,
        allocation: Allocation,
        own: Collection[ProviderUuid],
        leftover: Leftover,
    ) -> bool:
        """Whether a consumer holds something here beside what it holds on the node where it is
        counted: on the root there or, at the price of a request, below it.
        """
        if is_beside(allocation, own, [leftover.node]) or (
            leftover.in_other_store and is_used_elsewhere(allocation, own)
        ):
            return True
        return is_beside(allocation, own, [row.uuid for row in client.tree(leftover.node)])


def _may_be_removed(
    leftover: Leftover, doubtful: Mapping[ConsumerUuid, int], allocation: Allocation
) -> bool:
    """Whether the leftover may have been removed already by a removal whose result is unknown, so
    that the present allocation came afterwards.
    """
    return any(
        uuid in doubtful and doubtful[uuid] != allocation.generation
        for uuid in leftover.evacuations
    )


def _in_turn(tree: ProviderTree) -> frozenset[ProviderUuid]:
    """Return the root and its cells, of which every guest holds something."""
    roots = [one.uuid for one in tree.roots]
    return frozenset(
        one.uuid
        for one in tree.providers()
        if one.uuid in roots or (one.parent_uuid in roots and os_traits.HW_NUMA_ROOT in one.traits)
    )


def _offered(tree: ProviderTree, ours: Collection[ProviderUuid]) -> frozenset[str]:
    """Return the resource classes that only ``ours`` have, compared with all other providers of the
    tree, sharing ones included.
    """
    having = {True: set[str](), False: set[str]()}
    for one in tree.providers():
        having[one.uuid in ours] |= one.inventory.keys()
    return frozenset(having[True] - having[False])


def _running(facts: HostFacts) -> frozenset[ConsumerUuid] | None:
    """Return the uuids of the guests that the hypervisor shows; None where this could not be read.

    Empty for a driver that never shows guests: then the records decide.
    """
    return frozenset(one.uuid for one in facts.domains or ()) if facts.complete("domains") else None
