"""Taking a node out of service (removing its consumers' allocations and deleting its providers),
and adding a host's provider to an aggregate or removing it from there.

What cannot be deleted is reported, not forced.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent.errors import HAS_CHILDREN, GenerationConflict, PlacementError, PlacementRefused
from agent.model.names import ConsumerUuid, ProviderUuid, name_first, printable
from agent.placement.allocations.change import remove_from
from agent.placement.allocations.checks import (
    BadRequest,
    ConsumerNotFound,
    ForeignProvider,
    ProviderInUse,
    ProviderNotFound,
    consumer_uuid,
    provider_uuid,
)
from agent.placement.allocations.records import provider_by_name, repeat_on_conflict
from agent.placement.answers import Row
from agent.placement.client import PlacementClient
from agent.placement.mirror import below

LOG = logging.getLogger(__name__)


def delete_unused(
    client: PlacementClient,
    rows: Sequence[Row],
    owned: Collection[str] | None,
    staying: Mapping[ProviderUuid, Sequence[ConsumerUuid]],
) -> tuple[list[ProviderUuid], dict[ProviderUuid, PlacementError]]:
    """Delete the providers that can be deleted, children first. Return the deleted ones in the
    order sent, and the reason for each of the others.

    :param rows: the providers, parents before their children.
    :param owned: the providers that may be deleted, ``None`` for all.
    :param staying: the consumers that stay on each provider.
    """
    deleted, kept = list[ProviderUuid](), dict[ProviderUuid, PlacementError]()
    parents: set[ProviderUuid | None] = set()
    for row in reversed(rows):
        error = _obstacle(row, owned, staying[row.uuid], row.uuid in parents) or _refusal(
            client, row
        )
        if error is None:
            deleted.append(row.uuid)
            continue
        kept[row.uuid] = error
        parents.add(row.parent_uuid)
    return deleted, kept


def _obstacle(
    row: Row, owned: Collection[str] | None, consumers: Sequence[ConsumerUuid], is_parent: bool
) -> PlacementError | None:
    """Return why the provider has to stay, ``None`` if no reason is known."""
    name = f"provider {printable(row.name)} ({row.uuid})"
    if owned is not None and row.uuid not in owned:
        return ForeignProvider(
            f"{name} was made by somebody else",
            "have it deleted by whoever made it",
            provider=row.uuid,
        )
    if consumers:
        return ProviderInUse(
            f"{name} is in use by consumer {name_first(consumers, 1)}",
            "move or delete what is there",
            provider=row.uuid,
        )
    if is_parent:
        return ProviderInUse(
            f"{name} has children that stay", "see why they stay", provider=row.uuid
        )
    return None


def _refusal(client: PlacementClient, row: Row) -> PlacementError | None:
    """Delete the provider. Return ``None`` if it is deleted, else the reason."""
    name = f"provider {printable(row.name)} ({row.uuid})"
    try:
        _delete(client, row.uuid)
    except PlacementRefused as error:
        if error.is_in_use:
            return ProviderInUse(
                f"{name} is in use by somebody who came meanwhile",
                "do the same again",
                provider=row.uuid,
            )
        if error.placement_code == HAS_CHILDREN:
            return ProviderInUse(
                f"{name} got a child meanwhile", "do the same again", provider=row.uuid
            )
        return error
    except PlacementError as error:
        return error
    LOG.info("deleted %s", name)
    return None


def _delete(client: PlacementClient, uuid: ProviderUuid) -> None:
    try:
        client.delete_provider(uuid)
    except PlacementError as error:
        if not error.outcome_unknown:
            raise
        # A provider that is deleted by now is no error.
        client.delete_provider(uuid)


@dataclass(frozen=True, slots=True)
class Released:
    """The result of removing consumers' allocations."""

    done: Mapping[ConsumerUuid, int]
    """On how many providers the allocations of each consumer were removed."""
    failed: Mapping[ConsumerUuid, PlacementError]
    """Why the allocations of the other consumers could not be removed."""


@dataclass(frozen=True, slots=True)
class Decommissioned:
    """The result of decommissioning a node."""

    released: Released
    deleted: Sequence[ProviderUuid]
    """In the order sent."""
    kept: Mapping[ProviderUuid, PlacementError]
    """With the reason."""
    unknown: Mapping[ConsumerUuid, Sequence[ProviderUuid]]
    """Consumers that are neither known nor evacuated, with the providers that they use."""

    @property
    def complete(self) -> bool:
        """Whether nothing of the node is left."""
        return not (self.released.failed or self.kept)


def _release(
    client: PlacementClient, consumers: Iterable[ConsumerUuid], rows: Sequence[Row]
) -> Released:
    each, providers = dict.fromkeys(consumers, 0), frozenset(row.uuid for row in rows)
    if not providers:
        return Released(each, {})
    done, failed = dict[ConsumerUuid, int](), dict[ConsumerUuid, PlacementError]()
    for consumer in each:
        try:
            done[consumer] = remove_from(client, consumer, lambda _held: providers)
        except ConsumerNotFound:
            done[consumer] = 0
        except PlacementError as error:
            LOG.warning("consumer %s did not let go: %s", consumer, error.message)
            failed[consumer] = error
    return Released(done, failed)


def decommission(
    client: PlacementClient,
    root: str,
    *,
    known: Iterable[str],
    evacuated: Iterable[str] = (),
    owned: Collection[str] | None = None,
) -> Decommissioned:
    """Delete the tree at and below ``root``. If it does not exist any more, that is a success.

    A provider above one that stays is not deleted either.

    :param known: the consumers that belong to the node.
    :param evacuated: the consumers that belonged to the node. Both keep their allocations
        elsewhere; any other consumer is reported, and stays.
    :param owned: the providers that may be deleted, ``None`` for all of them.
    :raises BadRequest: the input is invalid.
    """
    top = provider_uuid(root)
    ours = [consumer_uuid(consumer) for consumers in (known, evacuated) for consumer in consumers]
    rows = below(client.tree(top), top)
    held = dict(
        zip(
            (row.uuid for row in rows),
            client.exchange.each(lambda row: client.consumers(row.uuid), rows),
            strict=True,
        )
    )
    released = _release(client, ours, rows)
    staying = {
        uuid: sorted(consumers.keys() - released.done.keys()) for uuid, consumers in held.items()
    }
    unknown: dict[ConsumerUuid, list[ProviderUuid]] = {}
    for uuid, consumers in staying.items():
        for consumer in consumers:
            if consumer not in released.failed:
                unknown.setdefault(consumer, []).append(uuid)
    return Decommissioned(released, *delete_unused(client, rows, owned, staying), unknown)


@dataclass(frozen=True, slots=True)
class Retired:
    """The result of deleting providers with a trait."""

    found: Sequence[Row]
    """All providers that were selected, parents before their children."""
    deleted: Sequence[ProviderUuid]
    """In the order sent."""
    kept: Mapping[ProviderUuid, PlacementError]
    """With the reason."""


def retire(
    client: PlacementClient, root: ProviderUuid, trait: str, named: Callable[[str], bool]
) -> Retired:
    """Delete the providers at and below ``root`` that have ``trait`` and whose name satisfies
    ``named``, as far as they are not in use.
    """
    rows = [row for row in below(client.tree(root), root) if named(row.name)]
    traits = client.exchange.each(lambda row: client.traits(row.uuid)[1], rows)
    meant = [row for row, has in zip(rows, traits, strict=True) if trait in has]
    held = client.exchange.each(lambda row: sorted(client.consumers(row.uuid)), meant)
    staying = {row.uuid: consumers for row, consumers in zip(meant, held, strict=True)}
    return Retired(meant, *delete_unused(client, meant, None, staying))


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
        if not (error.outcome_unknown and client.aggregates(provider)[1] == wanted):
            raise


def _meaning(error: PlacementRefused, provider: ProviderUuid) -> PlacementError:
    if error.status == 404:
        return ProviderNotFound(
            f"there is no provider {printable(provider)}",
            "check the host's name or uuid",
            provider=provider,
        )
    if error.is_conflict:
        return GenerationConflict(f"provider {provider} was changed meanwhile")
    return error
