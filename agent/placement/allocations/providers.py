"""Providers by name, names by uuid, and the providers that share through aggregates."""

from collections.abc import Iterable, Sequence

from agent.errors import AgentBug
from agent.model.names import ProviderUuid, is_uuid, normal_uuid, printable
from agent.model.provider_tree import ProviderTree
from agent.placement.allocations.checks import provider_name, provider_uuid
from agent.placement.allocations.errors import ProviderNotFound
from agent.placement.answers import Row
from agent.placement.client import PlacementClient


def provider_by_name(client: PlacementClient, name: str) -> Row:
    """The provider that is called exactly ``name``.

    :raises ProviderNotFound: none is.
    :raises BadRequest: no provider can be.
    """
    found = client.providers_named(provider_name(name))
    if len(found) > 1:
        raise AgentBug(f"Placement shows {len(found)} providers called {printable(name)}")
    if not found:
        raise ProviderNotFound(f"there is no provider called {printable(name)!r}", "check its name", name=name)
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
    """The providers that share through any of ``aggregates``, each once. Without aggregates nothing is asked.

    :raises BadRequest: one of them is no uuid.
    """
    return client.sharing({provider_uuid(one, "aggregate") for one in aggregates})
