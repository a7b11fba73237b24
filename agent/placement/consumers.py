"""Consumers of providers: reading their allocations, and tracking them through operations."""

from collections.abc import Iterable, Mapping

from agent.model.allocation import Allocation, Resources
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
from agent.placement.client import PlacementClient

Known = dict[ProviderUuid, Mapping[ConsumerUuid, Resources]]


def holding(
    consumers: Consumers, consumer: ConsumerUuid, resources: Mapping[ProviderUuid, Resources]
) -> Known:
    """Return ``consumers`` updated to ``resources``, the complete allocation of one consumer."""
    return {uuid: _with(held, consumer, resources.get(uuid)) for uuid, held in consumers.items()}


def _with(
    held: Mapping[ConsumerUuid, Resources], consumer: ConsumerUuid, resources: Resources | None
) -> Mapping[ConsumerUuid, Resources]:
    if held.get(consumer) == resources:
        return held
    others = {uuid: one for uuid, one in held.items() if uuid != consumer}
    return others | {consumer: resources} if resources else others


def follow(consumers: Known, operation: Operation) -> None:
    """Update ``consumers`` to the state after ``operation``.

    A provider that is new or had no inventory has no consumers: a consumer that came in between
    would have moved the generation that guards the write. The same holds for a reshape.
    """
    if isinstance(operation, AllocationOperation):
        consumers.update(holding(consumers, operation.wanted.consumer, operation.wanted.resources))
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
        for one in operation.allocations.values():
            consumers.update(holding(consumers, one.consumer, one.resources))


def due_in_turn(
    asked: Mapping[ProviderUuid, float], now: float, within: float, pause: float
) -> ProviderUuid | None:
    """Return the provider whose consumers are to be read again in this pass, ``None`` if none is
    due.

    One provider is read per pass, so the first has to be read early enough for the last to be in
    time.

    :param asked: when the consumers of each provider were last read, in seconds since the epoch.
    :param within: the seconds in which each provider is read again, 0 for never.
    :param pause: the seconds from one pass to the next.
    """
    if not within:
        return None
    # A time in the future only means that the clock was set back.
    order = sorted((at if at <= now else 0.0, uuid) for uuid, at in asked.items())
    late = any(now + place * pause > at + within for place, (at, _) in enumerate(order, start=1))
    return order[0][1] if late else None


def holders(
    client: PlacementClient, providers: Iterable[ProviderUuid]
) -> Mapping[ConsumerUuid, Allocation]:
    """Return every consumer with an allocation on any of ``providers``, with all its allocations.

    A consumer that released everything between the two reads is left out: its record would have no
    owner.
    """
    found = sorted(
        {
            consumer
            for held in client.exchange.each(client.consumers, providers)
            for consumer in held
        }
    )
    return {
        one.consumer: one
        for one in client.exchange.each(client.allocation, found)
        if one is not None
    }


def usages(
    client: PlacementClient, providers: Mapping[ProviderUuid, object]
) -> Mapping[ProviderUuid, Mapping[str, int]]:
    """Return the usage of each of ``providers``, by class."""
    wanted = list(providers)
    return dict(zip(wanted, client.exchange.each(client.usages, wanted), strict=True))
