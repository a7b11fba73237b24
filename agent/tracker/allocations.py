"""Whose the allocations of a node are: each consumer of its tree is judged once, and only what is proven to be over goes. Pure.

The first rule that fits decides. Where nobody can know, the consumer stays: capacity that is held too long is seen and
mended, capacity given away under a running guest is not.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from agent.model.allocation import Allocation, Resources
from agent.model.instance import Instance
from agent.model.migration import Migration, MigrationStatus
from agent.model.mirror import Consumers
from agent.model.names import ConsumerUuid, ProviderUuid, printable
from agent.model.operation import AllocationOperation, DeleteAllocations, SetAllocations
from agent.model.report import Drift
from agent.tracker.consumer_book import ConsumerRecords

# Moves that ended where they began: what the migration still holds may be all that its guest has.
CAME_TO_NOTHING: frozenset[MigrationStatus] = frozenset({"reverted", "failed", "cancelled"})
HOUR = 3600


@dataclass(frozen=True, slots=True)
class Holding:
    """A node's tree and who holds what of it, as far as that is ours to look after.

    ``offered``: the resource classes of which nobody can have his share elsewhere, because only this tree has them here.
    ``running``: the guests that the hypervisor itself shows, ``None`` if nobody can tell.
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


@dataclass(frozen=True, slots=True)
class Removal:
    """A consumer whose allocations go: all of them, or (not ``whole``) those on the node's own tree."""

    consumer: ConsumerUuid
    reason: str
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What to remove, what to tell, and since when (seconds since the epoch) nobody knows the consumers that nobody knows."""

    removals: tuple[Removal, ...] = ()
    drift: tuple[Drift, ...] = ()
    unknown_since: Mapping[ConsumerUuid, float] = field(default_factory=dict)


def judge(
    holding: Holding, records: ConsumerRecords, unknown_since: Mapping[ConsumerUuid, float], now: float, purge_after: float | None = None
) -> Verdicts:
    """Judge every consumer. ``purge_after``: seconds after which one that nobody knows goes, ``None`` for never.

    It goes in a later audit than the one that met it first, even with ``purge_after`` 0.
    """
    judgement = _Judgement(holding, records, unknown_since, now, purge_after)
    verdicts = [verdict for consumer in sorted(judgement.held) if (verdict := judgement.of(consumer)) is not None]
    return Verdicts(
        tuple(one for one in verdicts if isinstance(one, Removal)), tuple(one for one in verdicts if isinstance(one, Drift)), judgement.unknown
    )


def operations(
    removals: Collection[Removal], allocations: Mapping[ConsumerUuid, Allocation], own: Collection[ProviderUuid]
) -> Iterator[AllocationOperation]:
    """How to remove what ``allocations``, just read, shows of those who are to go; ``own``: the node's whole tree."""
    for one in removals:
        allocation = allocations.get(one.consumer)
        if allocation is None or not any(uuid in own for uuid in allocation.resources):
            continue
        rest = {} if one.whole else {uuid: held for uuid, held in allocation.resources.items() if uuid not in own}
        if rest:
            yield SetAllocations(old=allocation, new=rest, reason=one.reason)
        else:
            yield DeleteAllocations(old=allocation, reason=one.reason)


class _Judgement:
    """The rules of one node at one moment. ``unknown`` fills while they are applied."""

    def __init__(
        self, holding: Holding, records: ConsumerRecords, unknown_since: Mapping[ConsumerUuid, float], now: float, purge_after: float | None
    ) -> None:
        self.node, self.holding, self.running, self.records = holding.node, holding, holding.running, records
        self.held = holding.by_consumer()
        self.unknown_since, self.now, self.purge_after = unknown_since, now, purge_after
        self.tracked, self.moves = {claim.instance for claim in records.claims}, records.moves()
        self.unknown: dict[ConsumerUuid, float] = {}

    def of(self, consumer: ConsumerUuid) -> Removal | Drift | None:
        """What to do about a consumer; nothing, if it is as it should be."""
        instance, migration = self.records.instances.get(consumer), self.records.migrations.get(consumer)
        if consumer in self.tracked or consumer in self.records.unreadable:
            return None
        if instance is not None:
            return self._instance(instance)
        return self._migration(migration) if migration is not None else self._unknown(consumer)

    def _migration(self, migration: Migration) -> Removal | None:
        """While it goes on it holds what is promised at its source; so does the hidden twin of a move between cells."""
        if not migration.ended or migration.hidden:
            return None
        apart = self.holding.of(migration.instance) != self.holding.of(migration.uuid)
        if migration.status in CAME_TO_NOTHING and migration.instance in self.tracked and apart:
            # On the same node the guest may hold what it was to become, be it as much of another card; what it is to get back is here.
            return None
        return Removal(migration.uuid, f"the migration of instance {migration.instance} is over ({migration.status})")

    def _unknown(self, consumer: ConsumerUuid) -> Removal | Drift:
        """Most likely a guest that is just being made, of which nobody has told the agent yet."""
        since = self.unknown[consumer] = min(self.unknown_since.get(consumer, self.now), self.now)
        if self.purge_after is not None and self.now - since > self.purge_after:
            return Removal(consumer, f"no record has known it for {(self.now - since) / HOUR:.0f} hours")
        remedy = "none, if it is just being made; one that stays goes by [compute] purge_unknown_allocations, or by hand"
        return Drift("orphaned-allocation", "info", f"no record knows consumer {consumer}, which holds {self._amounts(consumer)}", remedy, consumer=consumer)

    def _instance(self, instance: Instance) -> Removal | Drift | None:
        if instance.deleted and not instance.hidden:
            return Removal(instance.uuid, "the instance is deleted")
        if self._evacuated(instance):
            return Removal(instance.uuid, f"the instance was evacuated to {_place(instance)}", whole=False)
        if instance.host is None:
            # Its allocation was made first; the claim comes.
            return None
        if self._here(instance):
            return None if instance.task_state is not None else self._not_counted(instance)
        return self._elsewhere(instance)

    def _here(self, instance: Instance) -> bool:
        return instance.host == self.records.host and instance.node == self.node

    def _evacuated(self, instance: Instance) -> bool:
        """Whether it was evacuated from here for good: the end of that told, no copy left, nothing under way that may bring it back."""
        if instance.hidden or instance.host is None or self._here(instance) or instance.task_state is not None:
            return False
        if self.running is None or instance.uuid in self.running:
            return False
        moves = self.moves.get(instance.uuid, ())
        if any(one.in_progress or (not one.ended and self.node in (one.source_node, one.dest_node)) for one in moves):
            return False
        return any(
            one.type == "evacuation" and one.status == "done" and (one.source_compute, one.source_node) == (self.records.host, self.node)
            for one in moves
        )

    def _not_counted(self, instance: Instance) -> Drift:
        detail = f"instance {instance.uuid} ({instance.vm_state}) is on this node and holds {self._amounts(instance.uuid)}, but has no claim"
        return self._orphaned(instance, detail, "claim it again if it runs; else delete its record, and its allocation goes too")

    def _elsewhere(self, instance: Instance) -> Drift:
        what = "another node of this host" if instance.host == self.records.host else "another host"
        detail = f"instance {instance.uuid} holds {self._amounts(instance.uuid)} here, but is on {what}: {_place(instance)}"
        return self._orphaned(instance, detail, "whoever moves it gives this back at the end; if nobody does, take this node out of its allocation")

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
