"""Sums, differences and unions of what consumers hold: pure functions that never change what they are given."""

from collections.abc import Callable, Collection
from enum import Enum
from typing import assert_never

from agent.model.allocation import Holdings
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.placement.allocations.errors import NegativeResult, NotAllocated

Amounts = dict[ProviderUuid, dict[str, int]]


class Doubling(Enum):
    """What a claim makes of a consumer that holds something already: its source of a move, beside the destination.

    ``MAXIMUM``: a provider on both sides is shared, and one copy is on it. ``SUM``: source and destination both run on it.
    ``REFUSE``: nobody moves; whoever holds something is another claim's.
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
        rest = {name: amount - gone.get(name, 0) for name, amount in resources.items() if amount != gone.get(name, 0)}
        if rest:
            left[provider] = rest
    return left


def _check(held: Holdings, provider: ProviderUuid, name: str, amount: int, consumer: ConsumerUuid) -> None:
    if provider not in held:
        raise NotAllocated(f"consumer {consumer} has nothing on provider {provider}", "ask what it has", consumer=consumer, provider=provider)
    there = held[provider].get(name)
    if there is None:
        raise NotAllocated(f"consumer {consumer} has no {name} on provider {provider}", "ask what it has", consumer=consumer, provider=provider)
    if amount > there:
        raise NegativeResult(
            f"consumer {consumer} has {there} {name} on provider {provider}, {amount} cannot be taken", "ask what it has", consumer=consumer, provider=provider
        )


def without(held: Holdings, providers: Collection[ProviderUuid]) -> Amounts:
    """``held`` but for ``providers``."""
    return {provider: dict(resources) for provider, resources in held.items() if provider not in providers}
