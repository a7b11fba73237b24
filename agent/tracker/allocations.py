"""Reconciliation of a node's allocations: each consumer of its tree is judged once, and only an
allocation that is proven to be over is removed. Pure.

The first rule that applies decides. Where the owner cannot be known, the allocation stays: capacity
that is held too long is reported and can be freed; capacity given away under a running guest cannot
be repaired.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from agent.model.finding import Drift
from agent.model.instance import Instance
from agent.model.inventory import Allocation, Resources
from agent.model.mirror import Consumers
from agent.model.names import ConsumerUuid, ProviderUuid, number_of, printable
from agent.model.node_records import Migration, MigrationStatus
from agent.model.operation import AllocationOperation, DeleteAllocations, SetAllocations
from agent.tracker import nova_commands
from agent.tracker.stored_state import TreeConsumers

# Moves that ended at their source: the migration's allocation may be all that its guest has.
CAME_TO_NOTHING: frozenset[MigrationStatus] = frozenset({"reverted", "failed", "cancelled"})
HOUR = 3600
# Seconds within which an instance that has just left may well be built here again.
SOON = 600
OF_A_NODE = frozenset({"VCPU", "PCPU", "MEMORY_MB"})


@dataclass(frozen=True, slots=True)
class AllocationShare:
    """A node's tree and the allocations of it, as far as this agent looks after them."""

    node: ProviderUuid
    consumers: Consumers
    offered: frozenset[str] = frozenset()
    """The resource classes that consumers can have from no other provider, because only this tree
    has them here.
    """
    running: frozenset[ConsumerUuid] | None = frozenset()
    """The guests that the hypervisor shows; None if they are unknown."""

    def by_consumer(self) -> Mapping[ConsumerUuid, Resources]:
        """Return the amounts of each consumer, summed over the whole tree."""
        sums: dict[ConsumerUuid, Counter[str]] = {}
        for held in self.consumers.values():
            for consumer, resources in held.items():
                sums.setdefault(consumer, Counter()).update(resources)
        return sums

    def of(self, consumer: ConsumerUuid) -> Mapping[ProviderUuid, Resources]:
        """Return the amounts of one consumer on each provider."""
        return {uuid: held[consumer] for uuid, held in self.consumers.items() if consumer in held}


Reach = Literal["tree", "tree-and-shared", "all"]
"""How much of a consumer's allocation is removed. ``tree``: its share of the node's own tree.
``tree-and-shared``: the rest too, if that is only on providers that share with the tree. ``all``:
everything, on any provider.
"""


@dataclass(frozen=True, slots=True)
class Leftover:
    """Condition under which a share of the node's tree is the leftover of evacuations: the consumer
    has a share of another tree too, where the instance is counted.
    """

    evacuations: frozenset[ConsumerUuid]
    """The evacuations that are cleared by the removal."""
    node: ProviderUuid
    """The node where the instance is counted."""
    otherwise: Drift
    """The drift to report if the share is no leftover."""
    in_other_store: bool = False
    """Whether the node keeps its records in another store, so that the instance may have gone on
    from there: then a share of CPUs or memory of any other tree proves as much.
    """


@dataclass(frozen=True, slots=True)
class Removal:
    """The removal of a consumer's allocation, as far as ``reach`` says."""

    consumer: ConsumerUuid
    reason: str
    reach: Reach = "tree"
    leftover: Leftover | None = None
    """If set, remove only if the allocation proves to be such a leftover."""
    unknown: bool = False
    """Whether it is removed because no record knows the consumer."""


@dataclass(frozen=True, slots=True)
class AllocationVerdicts:
    """What to remove and what to report."""

    removals: tuple[Removal, ...] = ()
    drift: tuple[Drift, ...] = ()
    unknown_since: Mapping[ConsumerUuid, float] = field(default_factory=dict)
    """The consumers without records, with the time since when they are unknown, in seconds since
    the epoch.
    """
    cleared: frozenset[ConsumerUuid] = frozenset()
    """The evacuations that have nothing left on this node."""


def judge_allocations(
    holding: AllocationShare,
    records: TreeConsumers,
    unknown_since: Mapping[ConsumerUuid, float],
    now: float,
    purge_after: float | None = None,
) -> AllocationVerdicts:
    """Judge every consumer. ``purge_after``: seconds after which an unknown consumer's allocation
    is removed; ``None`` for never.

    It is removed in a later audit than the one that first found it, even with ``purge_after`` 0.
    """
    judgement = _Judgement(holding, records, unknown_since, now, purge_after)
    verdicts = [
        verdict
        for consumer in sorted(judgement.held)
        if (verdict := judgement.of(consumer)) is not None
    ]
    return AllocationVerdicts(
        tuple(verdict for verdict in verdicts if isinstance(verdict, Removal)),
        tuple(verdict for verdict in verdicts if isinstance(verdict, Drift)),
        judgement.unknown,
        judgement.cleared(),
    )


def removal_operations(
    removals: Collection[Removal],
    allocations: Mapping[ConsumerUuid, Allocation],
    own: Collection[ProviderUuid],
    sharing: Collection[ProviderUuid] = (),
) -> Iterator[AllocationOperation]:
    """Yield the operations that carry out the removals on ``allocations``, which were just read.

    ``own``: the providers of the node's tree; ``sharing``: the providers that share with it.
    """
    for removal in removals:
        allocation = allocations.get(removal.consumer)
        if allocation is None or not any(uuid in own for uuid in allocation.resources):
            continue
        rest = {uuid: held for uuid, held in allocation.resources.items() if uuid not in own}
        if removal.reach == "all" or (
            removal.reach == "tree-and-shared" and all(uuid in sharing for uuid in rest)
        ):
            rest = {}
        if rest:
            yield SetAllocations(old=allocation, new=rest, reason=removal.reason)
        else:
            yield DeleteAllocations(old=allocation, reason=removal.reason)


def is_beside(
    allocation: Allocation, own: Collection[ProviderUuid], there: Collection[ProviderUuid]
) -> bool:
    """Return whether a consumer has a share of the node's ``own`` tree and one of the tree
    ``there``.
    """
    return any(uuid in own for uuid in allocation.resources) and any(
        uuid in there for uuid in allocation.resources
    )


def is_used_elsewhere(allocation: Allocation, own: Collection[ProviderUuid]) -> bool:
    """Return whether a consumer has CPUs or memory of another tree than the node's ``own``: these
    belong to a node, never to a provider that many nodes share.
    """
    return any(
        uuid not in own and not held.keys().isdisjoint(OF_A_NODE)
        for uuid, held in allocation.resources.items()
    )


class _Judgement:
    """The rules of one node at one moment. ``unknown`` is filled while they are applied."""

    def __init__(
        self,
        holding: AllocationShare,
        records: TreeConsumers,
        unknown_since: Mapping[ConsumerUuid, float],
        now: float,
        purge_after: float | None,
    ) -> None:
        self.node, self.holding, self.running, self.records = (
            holding.node,
            holding,
            holding.running,
            records,
        )
        self.held = holding.by_consumer()
        self.unknown_since, self.now, self.purge_after = unknown_since, now, purge_after
        self.tracked, self.moves = {claim.instance for claim in records.claims}, records.moves()
        self.unknown: dict[ConsumerUuid, float] = {}

    def of(self, consumer: ConsumerUuid) -> Removal | Drift | None:
        """Return what to do about a consumer; None if its allocation is right."""
        instance, migration = (
            self.records.instances.get(consumer),
            self.records.migrations.get(consumer),
        )
        if consumer in self.tracked or consumer in self.records.unreadable:
            return None
        if instance is not None:
            return self._instance(instance)
        return self._migration(migration) if migration is not None else self._unknown(consumer)

    def _migration(self, migration: Migration) -> Removal | None:
        """Return what to do about a migration's allocation. While the move goes on it holds the
        source's half; so does that of the hidden copy in a move between cells.
        """
        if not migration.ended or migration.hidden:
            return None
        apart = self.holding.of(migration.instance) != self.holding.of(migration.uuid)
        if migration.status in CAME_TO_NOTHING and self._may_be_here(migration.instance) and apart:
            # After a resize on the same node the guest may hold the amounts of its new flavor, even
            # as much of another card; the allocation that it is to get back is the migration's.
            return None
        return Removal(
            migration.uuid,
            f"the migration of instance {migration.instance} is over ({migration.status})",
            "tree-and-shared",
        )

    def _unknown(self, consumer: ConsumerUuid) -> Removal | Drift:
        """Return what to do about a consumer without records: most likely a guest that is being
        built and was not reported to the agent yet.
        """
        since = self.unknown[consumer] = min(self.unknown_since.get(consumer, self.now), self.now)
        # A guest that the hypervisor shows uses what it holds, although no record has it.
        gone = self.running is not None and consumer not in self.running
        if gone and self.purge_after is not None and self.now - since > self.purge_after:
            return Removal(
                consumer,
                f"no record has known it for {number_of(round((self.now - since) / HOUR), 'hour')}",
                unknown=True,
            )
        held, removal = (
            self.holding.of(consumer),
            f"agent allocation remove-tree {consumer} {self.node}",
        )
        # nova-manage lists consumers of one provider.
        provider = self.node if self.node in held else min(held)
        remedy = (
            "wait while the guest is being built or moves; if it is a migration whose server does "
            f"not move: {nova_commands.if_died(consumer, self.records.host, removal)}; if nova "
            f"does not know it: {nova_commands.if_orphaned(consumer, provider, removal)}; or "
            f"without nova, see its project: agent allocation show {consumer}; if that has no "
            f"such guest: {removal}"
        )
        return Drift(
            "orphaned-allocation",
            "info",
            f"no record knows consumer {consumer}, which holds {self._amounts(consumer)}",
            remedy,
            consumer=consumer,
        )

    def _instance(self, instance: Instance) -> Removal | Drift | None:
        if instance.deleted and not instance.hidden:
            # What it has on other hosts is removed by the host that had it last.
            return Removal(
                instance.uuid,
                "the instance is deleted",
                "all" if instance.host == self.records.host else "tree-and-shared",
            )
        if (evacuations := self._evacuations(instance)) and instance.node is not None:
            leftover = Leftover(
                evacuations,
                instance.node,
                self._elsewhere(instance),
                in_other_store=instance.node in self.records.strange_nodes,
            )
            return Removal(
                instance.uuid,
                f"the instance was evacuated to {_place(instance)}",
                leftover=leftover,
            )
        if instance.host is None:
            return self._nowhere(instance)
        if self._here(instance):
            return None if instance.task_state is not None else self._not_counted(instance)
        return self._elsewhere(instance)

    def _nowhere(self, instance: Instance) -> Drift | None:
        """Return the drift of an instance on no host: its build was aborted, or it was shelved. Its
        allocation is made before it is built again.
        """
        if instance.task_state is not None or instance.hidden:
            return None
        detail = (
            f"instance {instance.uuid} ({instance.vm_state}) holds "
            f"{self._amounts(instance.uuid)}, but is on no host and has no claim"
        )
        remedy = (
            f"if it is not about to be built here: agent allocation remove-tree {instance.uuid} "
            f"{self.node}"
        )
        severity: Literal["info", "warning"] = (
            "warning" if self.now - instance.updated_at >= SOON else "info"
        )
        return Drift("orphaned-allocation", severity, detail, remedy, consumer=instance.uuid)

    def _may_be_here(self, guest: ConsumerUuid) -> bool:
        """Return whether a guest is on this node by records or hypervisor, or whether that is
        unknown. A guest on this node need not have a claim.
        """
        instance = self.records.instances.get(guest)
        if guest in self.tracked or (instance is not None and instance.removed):
            return guest in self.tracked
        return (
            self.running is None
            or guest in self.running
            or (instance is not None and self._here(instance))
        )

    def _here(self, instance: Instance) -> bool:
        return instance.host == self.records.host and instance.node == self.node

    def _evacuations(self, instance: Instance) -> frozenset[ConsumerUuid]:
        """Return the evacuations that took the instance from here for good: their end was reported,
        no copy is left, and no move is under way that may bring it back.
        """
        if (
            instance.hidden
            or instance.host is None
            or self._here(instance)
            or instance.task_state is not None
        ):
            return frozenset()
        if self.running is None or instance.uuid in self.running:
            return frozenset()
        # The share may be for a move to this node that failed; a move from this node that failed
        # does not matter.
        if any(
            move.in_progress or (not move.ended and move.dest_node == self.node)
            for move in self.moves.get(instance.uuid, ())
        ):
            return frozenset()
        return frozenset(
            evacuation.uuid
            for evacuation in self.records.evacuations
            if evacuation.instance == instance.uuid
        )

    def cleared(self) -> frozenset[ConsumerUuid]:
        """Return the evacuations whose instance holds nothing here, or is here again or on its way
        back: an allocation that it has here later is no leftover of theirs.
        """
        back = {
            instance.uuid for instance in self.records.instances.values() if self._here(instance)
        }
        back |= {claim.instance for claim in self.records.claims if claim.half == "new"}
        return frozenset(
            evacuation.uuid
            for evacuation in self.records.evacuations
            if evacuation.instance not in self.held or evacuation.instance in back
        )

    def _not_counted(self, instance: Instance) -> Drift:
        detail = (
            f"instance {instance.uuid} ({instance.vm_state}) is on this node and holds "
            f"{self._amounts(instance.uuid)}, but has no claim"
        )
        return self._orphaned(
            instance,
            detail,
            (
                "claim it again if it runs; else forget it, and what it holds here goes too: "
                f"agent guests forget {instance.uuid}"
            ),
        )

    def _elsewhere(self, instance: Instance) -> Drift:
        what = "another node of this host" if instance.host == self.records.host else "another host"
        detail = (
            f"instance {instance.uuid} holds {self._amounts(instance.uuid)} here, but is on "
            f"{what}: {_place(instance)}"
        )
        return self._orphaned(
            instance,
            detail,
            (
                "the end of its move removes this share; if it stays, remove this node from its "
                "allocation"
            ),
        )

    @staticmethod
    def _orphaned(instance: Instance, detail: str, remedy: str) -> Drift:
        return Drift("orphaned-allocation", "warning", detail, remedy, consumer=instance.uuid)

    def _amounts(self, consumer: ConsumerUuid) -> str:
        return amounts_text(self.held[consumer])


def amounts_text(resources: Resources) -> str:
    """Return the amounts as ``MEMORY_MB 2048, VCPU 1``."""
    return ", ".join(f"{name} {amount}" for name, amount in sorted(resources.items()))


def _place(instance: Instance) -> str:
    """Return host and node, in the form used for an end of a move."""
    return f"{printable(instance.host or '')}({instance.node or 'no node'})"
