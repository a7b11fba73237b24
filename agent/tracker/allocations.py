"""Whose the allocations of a node are: each consumer of its tree is judged once, and only what is
proven to be over goes. Pure.

The first rule that fits decides. Where nobody can know, the consumer stays: capacity that is held
too long is seen and mended, capacity given away under a running guest is not.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from agent.model.allocation import Allocation, Resources
from agent.model.instance import Instance
from agent.model.migration import Migration, MigrationStatus
from agent.model.mirror import Consumers
from agent.model.names import ConsumerUuid, ProviderUuid, number_of, printable
from agent.model.operation import AllocationOperation, DeleteAllocations, SetAllocations
from agent.model.report import Drift
from agent.tracker.consumer_records import TreeConsumers

# Moves that ended where they began: what the migration still holds may be all that its guest has.
CAME_TO_NOTHING: frozenset[MigrationStatus] = frozenset({"reverted", "failed", "cancelled"})
HOUR = 3600
# So long, in seconds, an instance that has just left may well be built here again.
SOON = 600
OF_A_NODE = frozenset({"VCPU", "PCPU", "MEMORY_MB"})


@dataclass(frozen=True, slots=True)
class AllocationShare:
    """A node's tree and who holds what of it, as far as that is ours to look after.

    ``offered``: the resource classes of which nobody can have his share elsewhere, because only
    this tree has them here. ``running``: the guests that the hypervisor itself shows, ``None`` if
    nobody can tell.
    """

    node: ProviderUuid
    consumers: Consumers
    offered: frozenset[str] = frozenset()
    running: frozenset[ConsumerUuid] | None = frozenset()

    def by_consumer(self) -> Mapping[ConsumerUuid, Resources]:
        """What each consumer holds of the whole tree."""
        sums: dict[ConsumerUuid, Counter[str]] = {}
        for held in self.consumers.values():
            for consumer, resources in held.items():
                sums.setdefault(consumer, Counter()).update(resources)
        return sums

    def of(self, consumer: ConsumerUuid) -> Mapping[ProviderUuid, Resources]:
        """What one consumer holds of each provider."""
        return {uuid: held[consumer] for uuid, held in self.consumers.items() if consumer in held}


# How much of what a consumer holds goes. ``tree``: its share of the node's own tree.
# ``tree-and-shared``: the rest as well, if that is only on providers that share with the tree.
# ``all``: everything, wherever it is.
Reach = Literal["tree", "tree-and-shared", "all"]


@dataclass(frozen=True, slots=True)
class Leftover:
    """What makes a share of the node's tree the leftover of evacuations: a share beside it, where
    the instance is counted, on ``node``.

    ``evacuations``: those that the removal uses up. ``otherwise``: what to tell of a share that is
    none. ``told_last``: the node keeps its records in another store, so that the instance may have
    gone on from there: then a share of CPUs or memory of any other tree says as much.
    """

    evacuations: frozenset[ConsumerUuid]
    node: ProviderUuid
    otherwise: Drift
    told_last: bool = False


@dataclass(frozen=True, slots=True)
class Removal:
    """A consumer that gives back what it holds, as far as ``reach`` says. ``leftover``: only if
    what it holds proves to be one.
    """

    consumer: ConsumerUuid
    reason: str
    reach: Reach = "tree"
    leftover: Leftover | None = None


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What to remove, what to tell, and since when (seconds since the epoch) nobody knows the
    consumers that nobody knows.

    ``cleared``: evacuations that have nothing left here.
    """

    removals: tuple[Removal, ...] = ()
    drift: tuple[Drift, ...] = ()
    unknown_since: Mapping[ConsumerUuid, float] = field(default_factory=dict)
    cleared: frozenset[ConsumerUuid] = frozenset()


def judge(
    holding: AllocationShare,
    records: TreeConsumers,
    unknown_since: Mapping[ConsumerUuid, float],
    now: float,
    purge_after: float | None = None,
) -> Verdicts:
    """Judge every consumer. ``purge_after``: seconds after which one that nobody knows goes,
    ``None`` for never.

    It goes in a later audit than the one that met it first, even with ``purge_after`` 0.
    """
    judgement = _Judgement(holding, records, unknown_since, now, purge_after)
    verdicts = [
        verdict
        for consumer in sorted(judgement.held)
        if (verdict := judgement.of(consumer)) is not None
    ]
    return Verdicts(
        tuple(one for one in verdicts if isinstance(one, Removal)),
        tuple(one for one in verdicts if isinstance(one, Drift)),
        judgement.unknown,
        judgement.cleared(),
    )


def operations(
    removals: Collection[Removal],
    allocations: Mapping[ConsumerUuid, Allocation],
    own: Collection[ProviderUuid],
    sharing: Collection[ProviderUuid] = (),
) -> Iterator[AllocationOperation]:
    """How to remove what ``allocations``, just read, shows of those who are to go.

    ``own``: the node's whole tree; ``sharing``: the providers that share with it.
    """
    for one in removals:
        allocation = allocations.get(one.consumer)
        if allocation is None or not any(uuid in own for uuid in allocation.resources):
            continue
        rest = {uuid: held for uuid, held in allocation.resources.items() if uuid not in own}
        if one.reach == "all" or (
            one.reach == "tree-and-shared" and all(uuid in sharing for uuid in rest)
        ):
            rest = {}
        if rest:
            yield SetAllocations(old=allocation, new=rest, reason=one.reason)
        else:
            yield DeleteAllocations(old=allocation, reason=one.reason)


def is_beside(
    allocation: Allocation, own: Collection[ProviderUuid], there: Collection[ProviderUuid]
) -> bool:
    """Whether a consumer has a share of the node's ``own`` tree beside one of the tree that is
    ``there``.
    """
    return any(uuid in own for uuid in allocation.resources) and any(
        uuid in there for uuid in allocation.resources
    )


def is_used_elsewhere(allocation: Allocation, own: Collection[ProviderUuid]) -> bool:
    """Whether a consumer has CPUs or memory of another tree than the node's ``own``: those are of a
    node, and not of what many nodes share.
    """
    return any(
        uuid not in own and not held.keys().isdisjoint(OF_A_NODE)
        for uuid, held in allocation.resources.items()
    )


class _Judgement:
    """The rules of one node at one moment. ``unknown`` fills while they are applied."""

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
        """What to do about a consumer; nothing, if it is as it should be."""
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
        """While it goes on it holds what is promised at its source; so does the hidden twin of a
        move between cells.
        """
        if not migration.ended or migration.hidden:
            return None
        apart = self.holding.of(migration.instance) != self.holding.of(migration.uuid)
        if migration.status in CAME_TO_NOTHING and self._may_be_here(migration.instance) and apart:
            # On the same node the guest may hold what it was to become, be it as much of another
            # card; what it is to get back is here.
            return None
        return Removal(
            migration.uuid,
            f"the migration of instance {migration.instance} is over ({migration.status})",
            "tree-and-shared",
        )

    def _unknown(self, consumer: ConsumerUuid) -> Removal | Drift:
        """Most likely a guest that is just being made, of which nobody has told the agent yet."""
        since = self.unknown[consumer] = min(self.unknown_since.get(consumer, self.now), self.now)
        # A guest that the hypervisor shows uses what it holds, whoever forgot to tell of it.
        gone = self.running is not None and consumer not in self.running
        if gone and self.purge_after is not None and self.now - since > self.purge_after:
            return Removal(
                consumer,
                f"no record has known it for {number_of(round((self.now - since) / HOUR), 'hour')}",
            )
        remedy = (
            "none, if it is just being made; one that stays goes by [compute] "
            "purge_unknown_allocations, or by hand"
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
            # What it has elsewhere is for those to give back who had it last.
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
                told_last=instance.node in self.records.strange_nodes,
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
        """An instance on no host: its build was aborted, or it was shelved. Before it is built
        again its allocation is made first.
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
        """Whether a guest is on this node, as records or hypervisor say, or nobody can tell. Not
        every one that is has a claim.
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
        """By which it was evacuated from here for good: the end of that told, no copy left, nothing
        under way that may bring it back.
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
        # A move that failed on its way here may still be what the share is for; one that failed on
        # its way from here is in nobody's way.
        if any(
            one.in_progress or (not one.ended and one.dest_node == self.node)
            for one in self.moves.get(instance.uuid, ())
        ):
            return frozenset()
        return frozenset(
            one.uuid for one in self.records.evacuations if one.instance == instance.uuid
        )

    def cleared(self) -> frozenset[ConsumerUuid]:
        """The evacuations whose instance holds nothing here, or is here again or coming: what it
        holds here later is no leftover of theirs.
        """
        back = {one.uuid for one in self.records.instances.values() if self._here(one)}
        back |= {one.instance for one in self.records.claims if one.half == "new"}
        return frozenset(
            one.uuid
            for one in self.records.evacuations
            if one.instance not in self.held or one.instance in back
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
                f"claim it again if it runs; else agent guests forget {instance.uuid}, and what it "
                "holds here goes too"
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
                "whoever moves it gives this back at the end; if nobody does, take this node out "
                "of its allocation"
            ),
        )

    @staticmethod
    def _orphaned(instance: Instance, detail: str, remedy: str) -> Drift:
        return Drift("orphaned-allocation", "warning", detail, remedy, consumer=instance.uuid)

    def _amounts(self, consumer: ConsumerUuid) -> str:
        return amounts_text(self.held[consumer])


def amounts_text(resources: Resources) -> str:
    """``MEMORY_MB 2048, VCPU 1``."""
    return ", ".join(f"{name} {amount}" for name, amount in sorted(resources.items()))


def _place(instance: Instance) -> str:
    """Host and node, as a move's end."""
    return f"{printable(instance.host or '')}({instance.node or 'no node'})"
