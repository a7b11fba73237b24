"""Changing what a consumer holds, by amounts or by providers: computed anew whenever somebody else
was faster.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from typing import assert_never

from agent.errors import PlacementError
from agent.model.allocation import Allocation, Holdings
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.placement import codes
from agent.placement.allocations.checks import (
    consumer_uuid,
    holdings_problems,
    normal_holdings,
    provider_uuid,
    refuse,
)
from agent.placement.allocations.errors import (
    ConsumerChanged,
    NegativeResult,
    NotAllocated,
    SeveralTrees,
)
from agent.placement.allocations.providers import existing, members
from agent.placement.allocations.writing import repeated, write
from agent.placement.client import PlacementClient


class Deleted(Enum):
    """What became of a consumer that is gone now."""

    DELETED = "deleted"
    ABSENT = "was absent"


def delete(client: PlacementClient, consumer: str) -> Deleted:
    """Take everything from a consumer.

    :raises ConsumerChanged: somebody else was faster every time.
    :raises BadRequest: it is no uuid.
    """
    uuid = consumer_uuid(consumer)

    def attempt() -> Deleted:
        held = client.allocation(uuid)
        if held is None:
            # Nothing may be written: it would leave a consumer that nobody sees.
            return Deleted.ABSENT
        write(client, replace(held, resources={}))
        return Deleted.DELETED

    return repeated(client, attempt, f"consumer {uuid}", ConsumerChanged)


def delete_forced(client: PlacementClient, consumer: str) -> Deleted:
    """Take everything from a consumer without looking. No generation moves, so that no other client
    notices.

    :raises BadRequest: it is no uuid.
    """
    uuid = consumer_uuid(consumer)
    try:
        had = client.delete_allocation(uuid)
    except PlacementError as error:
        if not codes.may_be_applied(error):
            raise
        client.delete_allocation(uuid)
        # Whether it had anything when it was asked for first, nobody can say; now it has nothing.
        return Deleted.DELETED
    return Deleted.DELETED if had else Deleted.ABSENT


Amounts = dict[ProviderUuid, dict[str, int]]


class Doubling(Enum):
    """What a claim makes of a consumer that holds something already: its source of a move, beside
    the destination.

    ``MAXIMUM``: a provider on both sides is shared, and one copy is on it. ``SUM``: source and
    destination both run on it. ``REFUSE``: nobody moves; whoever holds something is another
    claim's.
    """

    REFUSE = "refuse"
    MAXIMUM = "maximum"
    SUM = "sum"


def doubled(source: Holdings, destination: Holdings, doubling: Doubling) -> Amounts:
    """Source and destination of a move in one.

    :raises ValueError: they may not be joined.
    """
    if doubling is Doubling.MAXIMUM:
        return _joined(source, destination, max)
    if doubling is Doubling.SUM:
        return added(source, destination)
    if doubling is Doubling.REFUSE:
        raise ValueError("source and destination may not be joined")
    assert_never(doubling)


def added(held: Holdings, more: Holdings) -> Amounts:
    """``held`` and ``more`` together."""
    return _joined(held, more, int.__add__)


def _joined(left: Holdings, right: Holdings, join: Callable[[int, int], int]) -> Amounts:
    joined: Amounts = {provider: dict(resources) for provider, resources in left.items()}
    for provider, resources in right.items():
        there = joined.setdefault(provider, {})
        for name, amount in resources.items():
            there[name] = join(there.get(name, 0), amount)
    return joined


def subtracted(held: Holdings, less: Holdings, consumer: ConsumerUuid) -> Amounts:
    """``held`` without ``less``; a class or provider of which nothing is left is not in it.

    :raises NotAllocated: ``consumer`` has nothing of a provider or class.
    :raises NegativeResult: it has less.
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


def without(held: Holdings, providers: Collection[ProviderUuid]) -> Amounts:
    """``held`` but for ``providers``."""
    return {
        provider: dict(resources)
        for provider, resources in held.items()
        if provider not in providers
    }


def add_resources(client: PlacementClient, consumer: str, more: Holdings) -> None:
    """Give a consumer ``more``, which may be nothing.

    :raises ConsumerNotFound: it holds nothing, so that nobody knows its owner.
    :raises NotEnoughRoom: there is no room for it.
    :raises OutOfRetries: somebody else was faster every time.
    :raises BadRequest: the input makes no sense.
    """
    _changed(client, consumer, more, lambda held, amounts: added(held.resources, amounts))


def remove_resources(client: PlacementClient, consumer: str, less: Holdings) -> None:
    """Take ``less``, which may be nothing, from a consumer; one that is left with nothing is gone.

    :raises ConsumerNotFound: it holds nothing.
    :raises NotAllocated: it has nothing of a provider or class.
    :raises NegativeResult: it has less of it.
    :raises OutOfRetries: somebody else was faster every time.
    :raises BadRequest: the input makes no sense.
    """
    _changed(
        client,
        consumer,
        less,
        lambda held, amounts: subtracted(held.resources, amounts, held.consumer),
    )


def _changed(
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
        held = existing(client, uuid)
        write(client, replace(held, resources=change(held, normal)))

    repeated(client, attempt, f"consumer {uuid}")


def remove_tree(client: PlacementClient, consumer: str, root: str) -> int:
    """Take from a consumer all that it has at and below ``root``; what it has elsewhere, it keeps.

    Returns on how many providers that was.

    :raises ConsumerNotFound: it holds nothing at all.
    :raises OutOfRetries: somebody else was faster every time.
    :raises BadRequest: the input makes no sense.
    """
    uuid, top = consumer_uuid(consumer), provider_uuid(root)
    return remove_from(client, uuid, lambda _held: members(client, top))


def remove_from_one(client: PlacementClient, consumer: str, roots: Collection[str]) -> int:
    """As :func:`remove_tree`, from that one of ``roots``, of which there may be many, that the
    consumer holds something of.

    :raises SeveralTrees: it holds something of more than one.
    """
    uuid, tops = consumer_uuid(consumer), frozenset(map(provider_uuid, roots))

    def only(held: Collection[ProviderUuid]) -> Collection[ProviderUuid]:
        found = _below(client, held, tops)
        if len(there := sorted(set(found.values()))) > 1:
            raise SeveralTrees(
                (
                    f"consumer {uuid} holds something of {len(there)} of these nodes: "
                    f"{', '.join(there)}"
                ),
                "say of which of them it is to go",
            )
        return found

    return remove_from(client, uuid, only)


def _below(
    client: PlacementClient, providers: Collection[ProviderUuid], roots: Collection[ProviderUuid]
) -> Mapping[ProviderUuid, ProviderUuid]:
    """Those of ``providers`` that are one of ``roots`` or below one, with that one."""
    parents: dict[ProviderUuid, ProviderUuid | None] = {}
    for one in providers:
        if one not in parents:
            parents |= {row.uuid: row.parent_uuid for row in client.tree(one)}

    def upwards(provider: ProviderUuid | None) -> Iterator[ProviderUuid]:
        while provider is not None:
            yield provider
            provider = parents.get(provider)

    return {
        one: top
        for one in providers
        if (top := next((above for above in upwards(one) if above in roots), None)) is not None
    }


def remove_from(
    client: PlacementClient,
    consumer: ConsumerUuid,
    providers: Callable[[Collection[ProviderUuid]], Collection[ProviderUuid]],
) -> int:
    """As :func:`remove_tree`, from ``providers``: a function of those that the consumer has
    something of, asked once it is known to.
    """

    def attempt() -> int:
        held = existing(client, consumer)
        kept = without(held.resources, providers(held.resources.keys()))
        if removed := len(held.resources) - len(kept):
            write(client, replace(held, resources=kept))
        return removed

    return repeated(client, attempt, f"consumer {consumer}")
