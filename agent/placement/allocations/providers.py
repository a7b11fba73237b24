"""Providers by name, names by uuid, and the providers that share through aggregates."""

from collections.abc import Iterable, Mapping, Sequence

from agent.errors import AgentBug
from agent.model.allocation import Allocation
from agent.model.names import ConsumerUuid, ProviderUuid, is_uuid, normal_uuid, printable
from agent.model.provider_tree import ProviderTree
from agent.placement.allocations.checks import consumer_uuid, provider_name, provider_uuid
from agent.placement.allocations.errors import ConsumerNotFound, ProviderNotFound
from agent.placement.answers import Row
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
        raise ConsumerNotFound(
            f"consumer {consumer} holds nothing", "check its uuid", consumer=consumer
        )
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


def provider_by_name(client: PlacementClient, name: str) -> Row:
    """The provider that is called exactly ``name``.

    :raises ProviderNotFound: none is.
    :raises BadRequest: no provider can be.
    """
    found = client.providers_named(provider_name(name))
    if len(found) > 1:
        raise AgentBug(f"Placement shows {len(found)} providers called {printable(name)}")
    if not found:
        raise ProviderNotFound(
            f"there is no provider called {printable(name)!r}", "check its name", name=name
        )
    return found[0]


def provider_by(client: PlacementClient, name_or_uuid: str) -> Row:
    """The provider that a person means.

    :raises ProviderNotFound: there is none.
    :raises BadRequest: there can be none.
    """
    if not is_uuid(name_or_uuid):
        return provider_by_name(client, name_or_uuid)
    row = client.provider(normal_uuid(name_or_uuid))
    if row is None:
        raise _unknown(normal_uuid(name_or_uuid))
    return row


def provider_name_of(client: PlacementClient, uuid: str, tree: ProviderTree | None = None) -> str:
    """A provider's name, from ``tree`` if that has it.

    :raises ProviderNotFound: there is no such provider.
    :raises BadRequest: it is no uuid.
    """
    wanted = provider_uuid(uuid)
    if tree is not None and tree.exists(wanted):
        return tree.name_of(wanted)
    row = client.provider(wanted)
    if row is None:
        raise _unknown(wanted)
    return row.name


def _unknown(uuid: ProviderUuid) -> ProviderNotFound:
    return ProviderNotFound(f"there is no provider {uuid}", "check its uuid", provider=uuid)


def sharing_providers(client: PlacementClient, aggregates: Iterable[str]) -> Sequence[Row]:
    """The providers that share through any of ``aggregates``, each once. Without aggregates nothing
    is asked.

    :raises BadRequest: one of them is no uuid.
    """
    return client.sharing({provider_uuid(one, "aggregate") for one in aggregates})
