"""The allocations of a node under audit: read where they may have changed, judged by the records,
what is over planned to go.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import os_traits

from agent.errors import AgentError
from agent.model.allocation import Allocation
from agent.model.facts import HostFacts
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.operation import AllocationOperation, Reshape
from agent.model.provider_tree import ProviderTree
from agent.model.report import Drift
from agent.placement import clock, codes
from agent.placement.client import PlacementClient
from agent.placement.flush import Flushed
from agent.placement.node_state import NodePlacementState
from agent.placement.plan import Plan
from agent.tracker.allocation_drift import drift, holders_of_other_amounts
from agent.tracker.allocations import (
    AllocationShare,
    Leftover,
    is_beside,
    is_used_elsewhere,
    judge,
    operations,
)
from agent.tracker.consumer_records import ConsumerRecords
from agent.tracker.node_state import NodeView


@dataclass(frozen=True, slots=True)
class JudgedAllocations:
    """What came of it. ``errors``: why it could not be done; the audit goes on without.

    ``cleared``: evacuations that have nothing left here; ``used_up``: those that each removal
    leaves nothing of, by consumer.
    """

    operations: tuple[AllocationOperation, ...] = ()
    drift: tuple[Drift, ...] = ()
    errors: tuple[AgentError, ...] = ()
    cleared: frozenset[ConsumerUuid] = frozenset()
    used_up: Mapping[ConsumerUuid, frozenset[ConsumerUuid]] = field(default_factory=dict)

    def added_to(self, plan: Plan) -> Plan:
        """``plan`` with this at its end. Not beside a reshape, which may be about the same
        consumers: then the next pass removes.
        """
        removals = (
            () if any(isinstance(one, Reshape) for one in plan.operations) else self.operations
        )
        return replace(
            plan, operations=(*plan.operations, *removals), drift=(*plan.drift, *self.drift)
        )


@dataclass(frozen=True, slots=True)
class NodeAllocations:
    """The allocations of one node. ``view``: what was counted of it; ``purge_after``: as the
    judgement takes it.

    ``refresh``: the seconds in which the consumers of the root and of its cells are asked for
    again, 0 for never.
    """

    placement_state: NodePlacementState
    book: ConsumerRecords
    view: NodeView
    purge_after: float | None = None
    refresh: float = 0

    def judged(
        self,
        client: PlacementClient,
        owned: Collection[str],
        facts: HostFacts,
        tried: Collection[ConsumerUuid],
    ) -> JudgedAllocations:
        """Judge every consumer of the providers that are ``owned``. ``tried``: those that this pass
        could not remove before.
        """
        try:
            if not self.book.needed(self.view, purging=self.purge_after is not None):
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
        tree = self.placement_state.own_tree()
        ours = [
            uuid for uuid in tree.get_provider_uuids() if uuid in owned and tree.has_inventory(uuid)
        ]
        if not ours:
            return JudgedAllocations()
        consumers = self.placement_state.consumers_in_turn(
            client, ours, _in_turn(tree), self.refresh
        )
        records = self.book.records(
            self.view, {consumer for held in consumers.values() for consumer in held}
        )
        holding = AllocationShare(
            self.view.node,
            consumers,
            _offered(self.placement_state.view.tree, ours),
            _running(facts),
        )
        verdicts = judge(
            holding, records, self.placement_state.view.unknown_since, clock.now(), self.purge_after
        )
        self.placement_state.unknown(verdicts.unknown_since)
        # What is known of them may have been given back since, which moves no generation.
        self.placement_state.ask_afresh(
            client, holders_of_other_amounts(holding, records), "amounts"
        )
        removals = [one for one in verdicts.removals if one.consumer not in tried]
        # Read again, because what moved no generation may be over already.
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
                operations(
                    removals, found, own, [one.uuid for one in self.placement_state.view.tree.roots]
                )
            ),
            (
                *verdicts.drift,
                *told,
                *drift(
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
        """Whether a consumer holds something here beside what it holds where it is counted: of the
        root there or, what costs a request, below it.
        """
        if is_beside(allocation, own, [leftover.node]) or (
            leftover.told_last and is_used_elsewhere(allocation, own)
        ):
            return True
        return is_beside(allocation, own, [row.uuid for row in client.tree(leftover.node)])


def flush_clearing(
    book: ConsumerRecords, judged: JudgedAllocations, flush: Callable[[], Flushed]
) -> Flushed:
    """Flush, and write down which evacuations have nothing left here any more.

    Each proves one leftover, also if the process ends between the removal and its note: so the
    generation by which the removal is guarded is written down before. A consumer that still has it
    then was not written.
    """
    book.clear(judged.cleared)
    guards = {one.old.consumer: one.old.generation for one in judged.operations}
    book.intend(
        {
            uuid: guards[consumer]
            for consumer, some in judged.used_up.items()
            if consumer in guards
            for uuid in some
        }
    )
    # If that raises, the next pass sees by the generations what was done.
    flushed = flush()
    done = {
        one.operation.old.consumer
        for one in flushed.outcomes
        if isinstance(one.operation, AllocationOperation) and one.status == "done"
    }
    book.clear(
        {uuid for consumer, some in judged.used_up.items() if consumer in done for uuid in some}
    )
    if flushed.outage is None and not any(map(codes.may_be_applied, flushed.errors)):
        # Whoever changed these consumers since, it was not this agent.
        book.intend(
            {
                uuid: None
                for consumer, some in judged.used_up.items()
                if consumer not in done
                for uuid in some
            }
        )
    return flushed


def _may_be_removed(
    leftover: Leftover, doubtful: Mapping[ConsumerUuid, int], allocation: Allocation
) -> bool:
    """Whether the leftover may be gone already, by a removal of which nobody knows what became, so
    that what is there came afterwards.
    """
    return any(
        uuid in doubtful and doubtful[uuid] != allocation.generation
        for uuid in leftover.evacuations
    )


def _in_turn(tree: ProviderTree) -> frozenset[ProviderUuid]:
    """The root and its cells, of which every guest has something."""
    roots = [one.uuid for one in tree.roots]
    return frozenset(
        one.uuid
        for one in tree.providers()
        if one.uuid in roots or (one.parent_uuid in roots and os_traits.HW_NUMA_ROOT in one.traits)
    )


def _offered(tree: ProviderTree, ours: Collection[ProviderUuid]) -> frozenset[str]:
    """The classes that only ``ours`` have, here and on what shares with the tree."""
    having = {True: set[str](), False: set[str]()}
    for one in tree.providers():
        having[one.uuid in ours] |= one.inventory.keys()
    return frozenset(having[True] - having[False])


def _running(facts: HostFacts) -> frozenset[ConsumerUuid] | None:
    """The guests that the hypervisor shows; ``None`` where it should and could not. One that never
    does leaves it to the records.
    """
    return frozenset(one.uuid for one in facts.domains or ()) if facts.complete("domains") else None
