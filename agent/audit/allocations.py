"""The allocations of a node under audit: read them where they may have changed, judge them by the
records, and plan removals.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

import os_traits

from agent.errors import AgentError
from agent.model.allocation import Allocation
from agent.model.facts import HostFacts
from agent.model.names import ConsumerUuid, ProviderUuid, printable
from agent.model.operation import AllocationOperation, Reshape
from agent.model.provider_tree import ProviderTree
from agent.model.report import Drift
from agent.placement import clock
from agent.placement.client import ALLOCATIONS, CONSUMER_TYPES, PlacementClient
from agent.placement.node_state import NodePlacementState
from agent.placement.plan import Plan
from agent.tracker.allocation_drift import (
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
from agent.tracker.consumer_records import ConsumerRecords, TreeConsumers
from agent.tracker.node_state import NodeView
from agent.tracker.observed_share import OF_NOVA


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
            ()
            if any(isinstance(operation, Reshape) for operation in plan.operations)
            else self.operations
        )
        return replace(
            plan, operations=(*plan.operations, *removals), drift=(*plan.drift, *self.drift)
        )


@dataclass(frozen=True, slots=True)
class _CheckedRemovals:
    """The removals that are right by the present allocations of their consumers."""

    removals: Sequence[Removal]
    found: Mapping[ConsumerUuid, Allocation]
    """The present allocations."""
    confirmed: Mapping[ConsumerUuid, Leftover]
    """Leftovers of evacuations that are removed."""
    refuted: Mapping[ConsumerUuid, Leftover]
    """What looked like a leftover and is none, or is gone."""
    of_others: Mapping[ConsumerUuid, Allocation]
    """Unknown consumers that stay, because they are of another service."""

    def drift(self, node: ProviderUuid, own: Collection[ProviderUuid]) -> Iterator[Drift]:
        """Yield the drift of consumers that stay on the providers ``own`` of ``node``."""
        for uuid, leftover in self.refuted.items():
            if uuid in self.found and not self.found[uuid].resources.keys().isdisjoint(own):
                yield leftover.otherwise
        for uuid, allocation in self.of_others.items():
            yield Drift(
                "orphaned-allocation",
                "info",
                f"consumer {uuid} of type {printable(str(allocation.consumer_type))} is of another "
                "service, and stays: it is no guest",
                f"none if that service has it; else: agent allocation remove-tree {uuid} {node}",
                consumer=uuid,
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
        if self.view.created:
            # No guest of the node can be on record yet.
            return JudgedAllocations()
        try:
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
        state, in_turn, offering = self.placement_state, root_and_cells(tree), ours
        on_record = self.consumer_records.is_needed(purging=self.purge_after is not None)
        if not on_record:
            # Without records all that is held is unknown: only what may be held is asked about, and
            # all that is held again, because what is given back moves no generation.
            # Who has a whole machine is nova's to say.
            ours = [] if facts.exclusive else state.perhaps_held(ours, in_turn, self.refresh)
            in_turn = frozenset(ours)
        if not ours:
            return JudgedAllocations()
        consumers = state.consumers_in_turn(client, ours, in_turn, self.refresh)
        records = self.consumer_records.read(
            self.view, {consumer for held in consumers.values() for consumer in held}
        )
        holding = AllocationShare(
            self.view.node,
            consumers,
            offered_only_by(offering, self.placement_state.view.tree),
            running(facts),
        )
        verdicts = judge_allocations(
            holding, records, self.placement_state.view.unknown_since, clock.now(), self.purge_after
        )
        # The known amounts may be outdated: giving back an allocation moves no generation.
        self.placement_state.reread_allocations(
            client, holders_of_other_amounts(holding, records), "amounts"
        )
        own = tree.get_provider_uuids()
        checked = self._check_removals(client, verdicts.removals, records, tried, own)
        roots = [root.uuid for root in self.placement_state.view.tree.roots]
        twice = self._on_two_hosts(client, holding, records, facts, {*own, *roots})
        state.remember_unknown({**verdicts.unknown_since, **dict.fromkeys(twice, clock.now())})
        present = replace(holding, consumers=self.placement_state.consumers(client, ours))
        return JudgedAllocations(
            tuple(removal_operations(checked.removals, checked.found, own, roots)),
            (
                *(
                    one
                    for one in verdicts.drift
                    # Without records the guests that run are told as guests.
                    if on_record
                    or (holding.running is not None and one.consumer not in holding.running)
                ),
                *checked.drift(self.view.node, own),
                *twice.values(),
                *allocation_drift(present, records),
            ),
            cleared=verdicts.cleared.union(
                *(leftover.evacuations for leftover in checked.refuted.values())
            ),
            used_up={uuid: leftover.evacuations for uuid, leftover in checked.confirmed.items()},
        )

    def _on_two_hosts(
        self,
        client: PlacementClient,
        holding: AllocationShare,
        records: TreeConsumers,
        facts: HostFacts,
        own: AbstractSet[ProviderUuid],
    ) -> Mapping[ConsumerUuid, Drift]:
        """Return the drift of the guests here that hold something of another host too. ``own``: the
        providers of the tree and those that share with it.
        """
        guests = at_rest(facts.domains or (), records)
        found = self.placement_state.held_elsewhere(
            client,
            guests.keys() & holding.by_consumer().keys(),
            lambda whole: is_used_elsewhere(whole, own),
        )
        return {
            uuid: on_two_hosts(guests[uuid], records.host, whole.resources.keys() - own)
            for uuid, whole in sorted(found.items())
        }

    def _check_removals(
        self,
        client: PlacementClient,
        removals: Iterable[Removal],
        records: TreeConsumers,
        tried: Collection[ConsumerUuid],
        own: Collection[ProviderUuid],
    ) -> "_CheckedRemovals":
        """Read the allocations to remove again, because a change that moved no generation may have
        made a removal unnecessary.
        """
        removals = [removal for removal in removals if removal.consumer not in tried]
        state = self.placement_state
        typed = state.capabilities.offers(CONSUMER_TYPES)
        found = state.allocations(
            client,
            [removal.consumer for removal in removals],
            CONSUMER_TYPES if typed else ALLOCATIONS,
        )
        doubtful = {
            evacuation.uuid: evacuation.clearing
            for evacuation in records.evacuations
            if evacuation.clearing is not None
        }
        confirmed, refuted = dict[ConsumerUuid, Leftover](), dict[ConsumerUuid, Leftover]()
        for removal in removals:
            uuid, leftover = removal.consumer, removal.leftover
            if leftover is None:
                continue
            stays = (
                uuid not in found
                or _may_be_removed(leftover, doubtful, found[uuid])
                or not self._is_leftover(client, found[uuid], own, leftover)
            )
            (refuted if stays else confirmed)[uuid] = leftover
        of_others = {
            removal.consumer: found[removal.consumer]
            for removal in removals
            if removal.unknown
            and removal.consumer in found
            and found[removal.consumer].consumer_type not in OF_NOVA
        }
        stay = refuted.keys() | of_others.keys()
        kept = [removal for removal in removals if removal.consumer not in stay]
        return _CheckedRemovals(kept, found, confirmed, refuted, of_others)

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


def root_and_cells(tree: ProviderTree) -> frozenset[ProviderUuid]:
    """Return the root and its cells, of which every guest holds something."""
    roots = [root.uuid for root in tree.roots]
    return frozenset(
        provider.uuid
        for provider in tree.providers()
        if provider.uuid in roots
        or (provider.parent_uuid in roots and os_traits.HW_NUMA_ROOT in provider.traits)
    )


def offered_only_by(ours: Collection[ProviderUuid], tree: ProviderTree) -> frozenset[str]:
    """Return the resource classes that only ``ours`` have, compared with all other providers of the
    tree, sharing ones included.
    """
    having = {True: set[str](), False: set[str]()}
    for provider in tree.providers():
        having[provider.uuid in ours] |= provider.inventory.keys()
    return frozenset(having[True] - having[False])


def running(facts: HostFacts) -> frozenset[ConsumerUuid] | None:
    """Return the uuids of the guests that the hypervisor shows; None where this could not be read.

    Empty for a driver that never shows guests: then the records decide.
    """
    return (
        frozenset(guest.uuid for guest in facts.domains or ())
        if facts.complete("domains")
        else None
    )
