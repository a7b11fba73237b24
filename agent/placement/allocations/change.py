"""Changing the allocations of a consumer by amounts or by providers; the result is computed again
whenever somebody else changed the consumer meanwhile.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from enum import Enum

from agent.errors import PlacementError
from agent.model.inventory import Allocation, Holdings
from agent.model.names import ConsumerUuid, ProviderUuid, name_first
from agent.placement.allocations.checks import (
    ConsumerChanged,
    NegativeResult,
    NotAllocated,
    SeveralTrees,
    consumer_uuid,
    holdings_problems,
    normal_holdings,
    provider_uuid,
    refuse,
)
from agent.placement.allocations.records import (
    existing_allocation,
    members,
    repeat_on_conflict,
    write,
)
from agent.placement.client import PlacementClient


def delete(client: PlacementClient, consumer: str) -> bool:
    """Delete all allocations of a consumer. Return whether it had any.

    :raises ConsumerChanged: somebody else changed the consumer during every attempt.
    :raises BadRequest: ``consumer`` is not a uuid.
    """
    uuid = consumer_uuid(consumer)

    def attempt() -> bool:
        held = client.allocation(uuid)
        if held is None:
            # Nothing may be written: it would create a consumer that no read shows.
            return False
        write(client, replace(held, resources={}))
        return True

    return repeat_on_conflict(client, attempt, f"consumer {uuid}", ConsumerChanged)


def delete_forced(client: PlacementClient, consumer: str) -> bool:
    """Delete all allocations of a consumer whatever its generation. Return whether it had any,
    or may have had.

    No generation moves, so that no other client notices.

    :raises BadRequest: ``consumer`` is not a uuid.
    """
    uuid = consumer_uuid(consumer)
    try:
        had = client.delete_allocation(uuid)
    except PlacementError as error:
        if not error.outcome_unknown:
            raise
        client.delete_allocation(uuid)
        # Whether the first request found allocations is unknown; now there are none.
        return True
    return had


Amounts = dict[ProviderUuid, dict[str, int]]


class Doubling(Enum):
    """How a claim treats a consumer that has allocations already, those of a move's source."""

    REFUSE = "refuse"
    """The claim is not for a move; existing allocations belong to another claim."""
    MAXIMUM = "maximum"
    """A provider on both sides is shared and holds one copy: the larger amount is allocated."""
    SUM = "sum"
    """Source and destination both run on the provider: the sum is allocated."""


def join_move(source: Holdings, destination: Holdings, doubling: Doubling) -> Amounts:
    """Return the joined allocations of source and destination of a move: by another ``doubling``
    than ``REFUSE``, which joins none.
    """
    return _join(source, destination, max if doubling is Doubling.MAXIMUM else int.__add__)


def add_holdings(held: Holdings, more: Holdings) -> Amounts:
    """Return the sum of ``held`` and ``more``."""
    return _join(held, more, int.__add__)


def _join(left: Holdings, right: Holdings, join: Callable[[int, int], int]) -> Amounts:
    joined: Amounts = {provider: dict(resources) for provider, resources in left.items()}
    for provider, resources in right.items():
        there = joined.setdefault(provider, {})
        for name, amount in resources.items():
            there[name] = join(there.get(name, 0), amount)
    return joined


def subtract_holdings(held: Holdings, less: Holdings, consumer: ConsumerUuid) -> Amounts:
    """Return ``held`` minus ``less``, without classes and providers of which nothing is left.

    :raises NotAllocated: ``consumer`` has no allocation of a provider or class.
    :raises NegativeResult: ``consumer`` has less than is to be removed.
    """
    for provider, resources in less.items():
        for name, amount in resources.items():
            _check(held, provider, name, amount, consumer)
    left: Amounts = {}
    for provider, resources in held.items():
        gone = less.get(provider, {})
        rest = {
            name: amount - gone.get(name, 0)
            for name, amount in resources.items()
            if amount != gone.get(name, 0)
        }
        if rest:
            left[provider] = rest
    return left


def _check(
    held: Holdings, provider: ProviderUuid, name: str, amount: int, consumer: ConsumerUuid
) -> None:
    if provider not in held:
        raise NotAllocated(
            f"consumer {consumer} has nothing on provider {provider}",
            "ask what it has",
            consumer=consumer,
            provider=provider,
        )
    there = held[provider].get(name)
    if there is None:
        raise NotAllocated(
            f"consumer {consumer} has no {name} on provider {provider}",
            "ask what it has",
            consumer=consumer,
            provider=provider,
        )
    if amount > there:
        raise NegativeResult(
            (
                f"consumer {consumer} has {there} {name} on provider {provider}, {amount} cannot "
                "be taken"
            ),
            "ask what it has",
            consumer=consumer,
            provider=provider,
        )


def without_providers(held: Holdings, providers: Collection[ProviderUuid]) -> Amounts:
    """Return ``held`` without ``providers``."""
    return {
        provider: dict(resources)
        for provider, resources in held.items()
        if provider not in providers
    }


def add_resources(client: PlacementClient, consumer: str, more: Holdings) -> None:
    """Add ``more``, which may be empty, to the allocations of a consumer.

    :raises ConsumerNotFound: the consumer has no allocations, so that its owner is unknown.
    :raises NotEnoughRoom: the providers lack capacity.
    :raises OutOfRetries: somebody else interfered with every attempt.
    :raises BadRequest: the input is invalid.
    """
    _change(client, consumer, more, lambda held, amounts: add_holdings(held.resources, amounts))


def remove_resources(client: PlacementClient, consumer: str, less: Holdings) -> None:
    """Remove ``less``, which may be empty, from the allocations of a consumer; a consumer without
    any left is deleted.

    :raises ConsumerNotFound: the consumer has no allocations.
    :raises NotAllocated: the consumer has no allocation of a provider or class.
    :raises NegativeResult: the consumer has less than is to be removed.
    :raises OutOfRetries: somebody else interfered with every attempt.
    :raises BadRequest: the input is invalid.
    """
    _change(
        client,
        consumer,
        less,
        lambda held, amounts: subtract_holdings(held.resources, amounts, held.consumer),
    )


def _change(
    client: PlacementClient,
    consumer: str,
    amounts: Holdings,
    change: Callable[[Allocation, Holdings], Holdings],
) -> None:
    uuid = consumer_uuid(consumer)
    refuse(holdings_problems(amounts))
    if not amounts:
        return
    normal = normal_holdings(amounts)

    def attempt() -> None:
        held = existing_allocation(client, uuid)
        write(client, replace(held, resources=change(held, normal)))

    repeat_on_conflict(client, attempt, f"consumer {uuid}")


def remove_tree(client: PlacementClient, consumer: str, root: str) -> int:
    """Remove all allocations of a consumer on the tree at and below ``root``; others stay.

    Return the number of providers that were affected.

    :raises ConsumerNotFound: the consumer has no allocations at all.
    :raises OutOfRetries: somebody else interfered with every attempt.
    :raises BadRequest: the input is invalid.
    """
    uuid, top = consumer_uuid(consumer), provider_uuid(root)
    return remove_from(client, uuid, lambda _held: members(client, top))


def remove_from_one(client: PlacementClient, consumer: str, roots: Collection[str]) -> int:
    """Remove all allocations of a consumer on the one tree of ``roots``, of which there may be
    many, where it has any; see :func:`remove_tree`.

    :raises SeveralTrees: the consumer has allocations on more than one of these trees.
    """
    uuid, tops = consumer_uuid(consumer), frozenset(map(provider_uuid, roots))

    def only(held: Collection[ProviderUuid]) -> Collection[ProviderUuid]:
        found = _below(client, held, tops)
        if len(there := sorted(set(found.values()))) > 1:
            raise SeveralTrees(
                (
                    f"consumer {uuid} holds something of {len(there)} of these nodes: "
                    f"{name_first(there)}"
                ),
                "say of which of them it is to go",
            )
        return found

    return remove_from(client, uuid, only)


def _below(
    client: PlacementClient, providers: Collection[ProviderUuid], roots: Collection[ProviderUuid]
) -> Mapping[ProviderUuid, ProviderUuid]:
    """Return the ``providers`` at or below one of ``roots``, each with that root."""
    parents: dict[ProviderUuid, ProviderUuid | None] = {}
    for provider in providers:
        if provider not in parents:
            parents |= {row.uuid: row.parent_uuid for row in client.tree(provider)}

    def upwards(provider: ProviderUuid | None) -> Iterator[ProviderUuid]:
        while provider is not None:
            yield provider
            provider = parents.get(provider)

    return {
        provider: top
        for provider in providers
        if (top := next((above for above in upwards(provider) if above in roots), None)) is not None
    }


def remove_from(
    client: PlacementClient,
    consumer: ConsumerUuid,
    providers: Callable[[Collection[ProviderUuid]], Collection[ProviderUuid]],
) -> int:
    """Remove all allocations of a consumer on some providers; see :func:`remove_tree`.

    :param providers: a function of the providers on which the consumer has allocations; it is
        called only if there are any.
    """

    def attempt() -> int:
        held = existing_allocation(client, consumer)
        kept = without_providers(held.resources, providers(held.resources.keys()))
        if removed := len(held.resources) - len(kept):
            write(client, replace(held, resources=kept))
        return removed

    return repeat_on_conflict(client, attempt, f"consumer {consumer}")
