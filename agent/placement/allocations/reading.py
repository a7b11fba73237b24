"""Reading who holds what: of one consumer, on one provider, on a whole tree."""

from collections.abc import Mapping

from agent.model.allocation import Allocation
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.placement.allocations.checks import consumer_uuid, provider_uuid
from agent.placement.allocations.errors import ConsumerNotFound, ProviderNotFound
from agent.placement.client import PlacementClient, ProviderHolding
from agent.placement.consumers import holders
from agent.placement.mirror import below


def read_consumer(client: PlacementClient, consumer: str) -> Allocation | None:
    """All that a consumer holds, ``None`` if it holds nothing.

    :raises BadRequest: it is no uuid.
    """
    return client.allocation(consumer_uuid(consumer))


def existing(client: PlacementClient, consumer: ConsumerUuid) -> Allocation:
    """All that a consumer holds.

    :raises ConsumerNotFound: it holds nothing.
    """
    held = client.allocation(consumer)
    if held is None:
        raise ConsumerNotFound(f"consumer {consumer} holds nothing", "check its uuid", consumer=consumer)
    return held


def of_provider(client: PlacementClient, provider: str) -> Mapping[ConsumerUuid, ProviderHolding]:
    """What each consumer holds on one provider.

    :raises ProviderNotFound: there is no such provider.
    :raises BadRequest: it is no uuid.
    """
    uuid = provider_uuid(provider)
    held = client.holdings(uuid)
    if held is None:
        raise ProviderNotFound(f"there is no provider {uuid}", "check its uuid", provider=uuid)
    return held


def of_tree(client: PlacementClient, root: str) -> Mapping[ConsumerUuid, Allocation]:
    """Every consumer with something on the tree at and below ``root``, with its complete record.

    :raises BadRequest: it is no uuid.
    """
    return holders(client, members(client, provider_uuid(root)))


def members(client: PlacementClient, root: ProviderUuid) -> list[ProviderUuid]:
    """The providers at and below ``root``, parents first; none if there is no such provider.

    What stands above it belongs to somebody else's nodes too.
    """
    return [row.uuid for row in below(client.tree(root), root)]
