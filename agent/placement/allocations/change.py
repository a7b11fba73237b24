"""Changing what a consumer holds, by amounts or by providers: computed anew whenever somebody else was faster."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from agent.model.allocation import Allocation, Holdings
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.placement.allocations.arithmetic import added, subtracted, without
from agent.placement.allocations.checks import consumer_uuid, holdings_problems, normal_holdings, provider_uuid, refuse
from agent.placement.allocations.errors import SeveralTrees
from agent.placement.allocations.reading import existing, members
from agent.placement.allocations.writing import repeated, write
from agent.placement.client import PlacementClient


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
    _changed(client, consumer, less, lambda held, amounts: subtracted(held.resources, amounts, held.consumer))


def _changed(client: PlacementClient, consumer: str, amounts: Holdings, change: Callable[[Allocation, Holdings], Holdings]) -> None:
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
    """As :func:`remove_tree`, from that one of ``roots``, of which there may be many, that the consumer holds something of.

    :raises SeveralTrees: it holds something of more than one.
    """
    uuid, tops = consumer_uuid(consumer), frozenset(map(provider_uuid, roots))

    def only(held: Collection[ProviderUuid]) -> Collection[ProviderUuid]:
        found = _below(client, held, tops)
        if len(there := sorted(set(found.values()))) > 1:
            raise SeveralTrees(f"consumer {uuid} holds something of {len(there)} of these nodes: {', '.join(there)}", "say of which of them it is to go")
        return found

    return remove_from(client, uuid, only)


def _below(client: PlacementClient, providers: Collection[ProviderUuid], roots: Collection[ProviderUuid]) -> Mapping[ProviderUuid, ProviderUuid]:
    """Those of ``providers`` that are one of ``roots`` or below one, with that one."""
    parents: dict[ProviderUuid, ProviderUuid | None] = {}
    for one in providers:
        if one not in parents:
            parents |= {row.uuid: row.parent_uuid for row in client.tree(one)}

    def upwards(provider: ProviderUuid | None) -> Iterator[ProviderUuid]:
        while provider is not None:
            yield provider
            provider = parents.get(provider)

    return {one: top for one in providers if (top := next((above for above in upwards(one) if above in roots), None)) is not None}


def remove_from(client: PlacementClient, consumer: ConsumerUuid, providers: Callable[[Collection[ProviderUuid]], Collection[ProviderUuid]]) -> int:
    """As :func:`remove_tree`, from ``providers``: a function of those that the consumer has something of, asked once it is known to."""

    def attempt() -> int:
        held = existing(client, consumer)
        kept = without(held.resources, providers(held.resources.keys()))
        if removed := len(held.resources) - len(kept):
            write(client, replace(held, resources=kept))
        return removed

    return repeated(client, attempt, f"consumer {consumer}")
