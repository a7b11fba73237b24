"""Reading consumers and providers (by name or uuid, by provider or tree, by aggregate), and the
usages of projects and users, for limits and for quota.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agent.errors import PlacementRefused
from agent.model.allocation import Allocation
from agent.model.names import ConsumerUuid, ProviderUuid, is_uuid, normal_uuid, printable
from agent.placement.allocations.checks import (
    ConsumerNotFound,
    ProviderNotFound,
    UsagesFailed,
    consumer_uuid,
    owner_problems,
    provider_name,
    provider_uuid,
    refuse,
)
from agent.placement.answers import Row
from agent.placement.client import PlacementClient
from agent.placement.mirror import below


def read_consumer(client: PlacementClient, consumer: str) -> Allocation | None:
    """Return all allocations of a consumer, ``None`` if it has none.

    :raises BadRequest: ``consumer`` is not a uuid.
    """
    return client.allocation(consumer_uuid(consumer))


def existing_allocation(client: PlacementClient, consumer: ConsumerUuid) -> Allocation:
    """Return all allocations of a consumer.

    :raises ConsumerNotFound: the consumer has none.
    """
    held = client.allocation(consumer)
    if held is None:
        raise ConsumerNotFound(
            f"consumer {consumer} holds nothing", "check its uuid", consumer=consumer
        )
    return held


class ConsumersOfTree(NamedTuple):
    """The providers at and below a root, and every consumer of one of them."""

    providers: Sequence[Row]
    """Parents first; none if the root does not exist."""
    consumers: Mapping[ConsumerUuid, Allocation]
    """With all allocations of the consumer, also on other trees."""


def of_tree(client: PlacementClient, root: str) -> ConsumersOfTree:
    """Return the tree at and below ``root`` with its consumers.

    :raises BadRequest: ``root`` is not a uuid.
    """
    top = provider_uuid(root)
    rows = below(client.tree(top), top)
    return ConsumersOfTree(rows, _holders(client, [row.uuid for row in rows]))


def _holders(
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
        allocation.consumer: allocation
        for allocation in client.exchange.each(client.allocation, found)
        if allocation is not None
    }


def members(client: PlacementClient, root: ProviderUuid) -> list[ProviderUuid]:
    """Return the providers at and below ``root``, parents first; none if it does not exist.

    Ancestors of ``root`` are excluded, because they may hold nodes of others too.
    """
    return [row.uuid for row in below(client.tree(root), root)]


def provider_by_name(client: PlacementClient, name: str) -> Row:
    """Return the provider that Placement has by ``name``.

    :raises ProviderNotFound: there is none.
    :raises BadRequest: the name is not valid for a provider.
    """
    found = client.provider_named(provider_name(name))
    if found is None:
        raise ProviderNotFound(
            f"there is no provider called {printable(name)!r}", "check its name", name=name
        )
    return found


def provider_by(client: PlacementClient, name_or_uuid: str) -> Row:
    """Return the provider with a given name or uuid.

    :raises ProviderNotFound: there is none.
    :raises BadRequest: the name is not valid for a provider.
    """
    if not is_uuid(name_or_uuid):
        return provider_by_name(client, name_or_uuid)
    row = client.provider(normal_uuid(name_or_uuid))
    if row is None:
        raise _unknown(normal_uuid(name_or_uuid))
    return row


def provider_name_of(client: PlacementClient, uuid: str) -> str:
    """Return a provider's name.

    :raises ProviderNotFound: there is no such provider.
    :raises BadRequest: ``uuid`` is not a uuid.
    """
    wanted = provider_uuid(uuid)
    row = client.provider(wanted)
    if row is None:
        raise _unknown(wanted)
    return row.name


def _unknown(uuid: ProviderUuid) -> ProviderNotFound:
    return ProviderNotFound(f"there is no provider {uuid}", "check its uuid", provider=uuid)


@dataclass(frozen=True, slots=True)
class QuotaUsage:
    """The usage that counts for quota."""

    cores: int
    """Shared and dedicated CPUs."""
    ram: int
    """In MiB."""


def usages_for_limits(
    client: PlacementClient, project_id: str, user_id: str | None = None
) -> Mapping[str, int]:
    """Return the allocated amount of each class; a class without usage is missing.

    :raises UsagesFailed: Placement refused the request.
    :raises PlacementUnreachable: no answer came, four times.
    :raises BadRequest: the input is invalid.
    """
    refuse(_problems(project_id, user_id))
    try:
        return client.owner_usages(project_id, user_id)
    except PlacementRefused as error:
        raise UsagesFailed(f"no usages: {error.message}", error.remedy) from error


def quota_usage(usages: Mapping[str, int]) -> QuotaUsage:
    """Return amounts by class as cores and memory."""
    return QuotaUsage(usages.get("VCPU", 0) + usages.get("PCPU", 0), usages.get("MEMORY_MB", 0))


def _problems(project_id: str, user_id: str | None) -> Iterator[str]:
    return owner_problems(project_id, "nobody" if user_id is None else user_id)
