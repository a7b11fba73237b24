"""Who holds what, asked of Placement and not remembered."""

from collections.abc import Iterable, Mapping

from agent.model.allocation import Allocation
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.placement.client import PlacementClient


def holders(client: PlacementClient, providers: Iterable[ProviderUuid]) -> Mapping[ConsumerUuid, Allocation]:
    """Every consumer with something on any of ``providers``, with its complete record.

    A consumer that let go between the two readings is left out: its record would have no owner.
    """
    found = sorted({consumer for held in client.exchange.each(client.consumers, providers) for consumer in held})
    return {one.consumer: one for one in client.exchange.each(client.allocation, found) if one is not None}


def usages(client: PlacementClient, providers: Mapping[ProviderUuid, object]) -> Mapping[ProviderUuid, Mapping[str, int]]:
    """What is allocated on each of ``providers``, by class."""
    wanted = list(providers)
    return dict(zip(wanted, client.exchange.each(client.usages, wanted), strict=True))
