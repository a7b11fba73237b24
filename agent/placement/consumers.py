"""Who holds what on a node: collected only when a reshape really has to move it."""

from collections.abc import Iterable, Mapping

from agent.model.allocation import Allocation
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.provider_tree import ProviderTree
from agent.placement.client import Client


def collect(client: Client, tree: ProviderTree, root: ProviderUuid) -> Mapping[ConsumerUuid, Allocation]:
    """Every consumer with something on the node's tree, with its complete record, also what it holds elsewhere."""
    if not tree.exists(root):
        return {}
    return holders(client, [uuid for uuid in tree.get_provider_uuids(root) if tree.has_inventory(uuid)])


def holders(client: Client, providers: Iterable[ProviderUuid]) -> Mapping[ConsumerUuid, Allocation]:
    """Every consumer with something on any of ``providers``, with its complete record.

    A consumer that let go between the two readings is left out: its record would have no owner.
    """
    found = sorted({consumer for held in client.exchange.each(client.consumers, providers) for consumer in held})
    return {one.consumer: one for one in client.exchange.each(client.allocation, found) if one is not None}


def usages(client: Client, providers: Mapping[ProviderUuid, object]) -> Mapping[ProviderUuid, Mapping[str, int]]:
    """What is allocated on each of ``providers``, by class."""
    wanted = list(providers)
    return dict(zip(wanted, client.exchange.each(client.usages, wanted), strict=True))
