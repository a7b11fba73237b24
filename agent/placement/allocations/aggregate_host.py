"""Adding a host's provider to an aggregate and removing it; other members and aggregates stay."""

from collections.abc import Callable

from agent.errors import GenerationConflict, PlacementError, PlacementRefused
from agent.model.names import ProviderUuid, printable
from agent.placement import codes
from agent.placement.allocations.checks import provider_uuid
from agent.placement.allocations.errors import BadRequest, ProviderNotFound
from agent.placement.allocations.providers import provider_by_name
from agent.placement.allocations.writing import repeat_on_conflict
from agent.placement.client import PlacementClient

Aggregates = frozenset[str]


def add_host(
    client: PlacementClient, aggregate: str, *, host: str | None = None, provider: str | None = None
) -> bool:
    """Add a host, given by its name or its provider's uuid, to an aggregate. Return whether it was
    not a member before.

    :raises ProviderNotFound: there is no such host.
    :raises BadRequest: neither or both of host and provider are given, or they are invalid; it is a
        ``ValueError`` too.
    :raises OutOfRetries: somebody else interfered with every attempt.
    """
    uuid = provider_uuid(aggregate, "aggregate")
    return _edit(client, _provider(client, host, provider), lambda present: present | {uuid})


def remove_host(
    client: PlacementClient, aggregate: str, *, host: str | None = None, provider: str | None = None
) -> bool:
    """Remove a host from an aggregate. Return whether it was a member.

    :raises ProviderNotFound, BadRequest, OutOfRetries: as :func:`add_host`.
    """
    uuid = provider_uuid(aggregate, "aggregate")
    return _edit(client, _provider(client, host, provider), lambda present: present - {uuid})


def _provider(client: PlacementClient, host: str | None, provider: str | None) -> ProviderUuid:
    if (host is None) == (provider is None):
        raise BadRequest(
            "one of host and provider has to be given",
            "give the host's name or the provider's uuid",
        )
    return (
        provider_uuid(provider)
        if provider is not None
        else provider_by_name(client, host or "").uuid
    )


def _edit(
    client: PlacementClient, provider: ProviderUuid, edit: Callable[[Aggregates], Aggregates]
) -> bool:
    def attempt() -> bool:
        try:
            generation, present = client.aggregates(provider)
            wanted = edit(present)
            if wanted != present:
                _write(client, provider, generation, wanted)
        except PlacementRefused as error:
            raise _meaning(error, provider) from error
        return wanted != present

    return repeat_on_conflict(client, attempt, f"provider {provider}")


def _write(
    client: PlacementClient, provider: ProviderUuid, generation: int, wanted: Aggregates
) -> None:
    try:
        client.set_aggregates(provider, generation, wanted)
    except PlacementError as error:
        if not (codes.may_be_applied(error) and client.aggregates(provider)[1] == wanted):
            raise


def _meaning(error: PlacementRefused, provider: ProviderUuid) -> PlacementError:
    if error.status == 404:
        return ProviderNotFound(
            f"there is no provider {printable(provider)}",
            "check the host's name or uuid",
            provider=provider,
        )
    if codes.is_conflict(error):
        return GenerationConflict(f"provider {provider} was changed meanwhile")
    return error
