"""Consumers of providers: tracking their allocations through operations, and when they are read
again.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from agent.model.inventory import Allocation, Resources
from agent.model.mirror import Consumers
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.operation import (
    AllocationOperation,
    CreateProvider,
    DeleteProvider,
    Operation,
    Reshape,
    SetInventory,
)

Known = dict[ProviderUuid, Mapping[ConsumerUuid, Resources]]

# How many consumers with an unchanged known allocation are read again at once, and the bounds of
# the pause between two reads in seconds; each pause is twice the one before.
REREAD = 8
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 600.0


def with_allocation(
    consumers: Consumers, consumer: ConsumerUuid, resources: Mapping[ProviderUuid, Resources]
) -> Known:
    """Return ``consumers`` updated to ``resources``, the complete allocation of one consumer."""
    return {uuid: _with(held, consumer, resources.get(uuid)) for uuid, held in consumers.items()}


def _with(
    held: Mapping[ConsumerUuid, Resources], consumer: ConsumerUuid, resources: Resources | None
) -> Mapping[ConsumerUuid, Resources]:
    if held.get(consumer) == resources:
        return held
    others = {uuid: other for uuid, other in held.items() if uuid != consumer}
    return others | {consumer: resources} if resources else others


def allocation_of(consumers: Consumers, consumer: ConsumerUuid) -> Mapping[ProviderUuid, Resources]:
    """Return what ``consumers`` shows of one consumer's allocation."""
    return {uuid: held[consumer] for uuid, held in consumers.items() if consumer in held}


def differing(
    before: Mapping[ConsumerUuid, Resources], after: Mapping[ConsumerUuid, Resources]
) -> Iterator[ConsumerUuid]:
    """Yield the consumers that are in only one of the two, or with other amounts."""
    return (
        consumer
        for consumer in before.keys() | after.keys()
        if before.get(consumer) != after.get(consumer)
    )


def follow(consumers: Known, operation: Operation) -> None:
    """Update ``consumers`` to the state after ``operation``.

    A provider that is new or had no inventory has no consumers: a consumer that came in between
    would have moved the generation that guards the write. The same holds for a reshape.
    """
    if isinstance(operation, AllocationOperation):
        _follow_allocation(consumers, operation.wanted)
    elif isinstance(operation, CreateProvider):
        consumers[operation.provider.uuid] = {}
    elif isinstance(operation, SetInventory) and not operation.old:
        consumers.setdefault(operation.provider.uuid, {})
    elif isinstance(operation, DeleteProvider):
        consumers.pop(operation.provider.uuid, None)
    elif isinstance(operation, Reshape):
        for uuid in operation.inventories:
            if not operation.old_inventories.get(uuid):
                consumers.setdefault(uuid, {})
        for allocation in operation.allocations.values():
            _follow_allocation(consumers, allocation)


def _follow_allocation(consumers: Known, allocation: Allocation) -> None:
    consumers.update(with_allocation(consumers, allocation.consumer, allocation.resources))


class HolderTurns:
    """When the consumers of providers are read again in turn, one provider a pass."""

    def __init__(self) -> None:
        self._last_pass: float | None = None
        self._pause = 0.0

    def next(
        self, asked: Mapping[ProviderUuid, float], now: float, within: float
    ) -> ProviderUuid | None:
        """Return the provider whose consumers are to be read again in this pass, ``None`` if none
        is due. To be called once a pass.

        One provider is read per pass, so the first has to be read early enough for the last to be
        in time.

        :param asked: when the consumers of each provider were last read, in seconds since the
            epoch.
        :param within: the seconds in which each provider is read again, 0 for never.
        """
        # Passes on request follow each other quickly, which says nothing about when the next
        # periodic pass comes.
        self._pause = (
            max(now - self._last_pass, self._pause / 2) if self._last_pass is not None else 0.0
        )
        self._last_pass = now
        if not within:
            return None
        # A time in the future only means that the clock was set back.
        order = sorted((at if at <= now else 0.0, uuid) for uuid, at in asked.items())
        late = any(
            now + place * self._pause > at + within for place, (at, _) in enumerate(order, start=1)
        )
        return order[0][1] if late else None


@dataclass(frozen=True, slots=True)
class _LastRead:
    """The allocation of a consumer when it was last read."""

    held: Mapping[ProviderUuid, Resources]
    at: float
    """When it was read, in seconds since the epoch."""
    pause: float
    """For how many seconds it is not read again."""


class RereadSchedule:
    """When the allocations of consumers that are reported are read again.

    Consumers whose known allocation is the same as at the last read are read again a few at a time
    and after growing pauses, so that a lasting state does not cost a request in every pass.
    """

    def __init__(self) -> None:
        # In the order of the reads; by the subject of the report.
        self._read: dict[str, dict[ConsumerUuid, _LastRead]] = {}

    @property
    def subjects(self) -> frozenset[str]:
        """The subjects about which consumers were read."""
        return frozenset(about for about, read in self._read.items() if read)

    def due(
        self, known: Consumers, consumers: Collection[ConsumerUuid], about: str, now: float
    ) -> list[ConsumerUuid]:
        """Return those of ``consumers``, reported ``about`` one subject, that are to be read."""
        last_reads = self._read[about] = {
            consumer: last
            for consumer, last in self._read.get(about, {}).items()
            if consumer in consumers
        }
        same = {
            consumer
            for consumer, last in last_reads.items()
            if last.held == allocation_of(known, consumer)
        }
        due = [
            consumer
            for consumer, last in last_reads.items()
            if consumer in same and not 0 <= now - last.at < last.pause
        ]
        return [*sorted(set(consumers).difference(same)), *due[:REREAD]]

    def record(
        self, known: Consumers, read: Iterable[ConsumerUuid], about: str, now: float
    ) -> None:
        """Record that the consumers ``read`` were read, with the result in ``known``."""
        last_reads = self._read[about]
        for consumer in read:
            last, held = last_reads.pop(consumer, None), allocation_of(known, consumer)
            pause = (
                min(max(last.pause * 2, FIRST_PAUSE), LONGEST_PAUSE)
                if last is not None and last.held == held
                else 0.0
            )
            # A consumer that holds nothing need not be read again soon, because a new allocation
            # moves a generation.
            last_reads[consumer] = _LastRead(held, now, pause if held else LONGEST_PAUSE)
