"""Repair of the allocations of devices: what guests have and Placement counts otherwise; which part
is written, and which is only reported. Pure.

Left alone are guests that hold nothing at all, because a migration may hold it for them, and guests
that are moving. A guest that holds more than it has may be about to get it, by a resize that the
scheduler has allocated for and that is not claimed yet: this is reported, and lowered only once it
has lasted. In that case a migration without a record may hold what the guest has, so nothing is
raised on a card of which a consumer without a record holds something.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from agent.model.finding import Drift
from agent.model.inventory import Allocation, capacity
from agent.model.mirror import Consumers
from agent.model.names import ConsumerUuid, ProviderUuid, printable
from agent.model.provider_tree import ProviderTree
from agent.placement.reshaping import AllocationMove
from agent.tree.device_providers import DeviceProviders
from agent.tree.reported_cards import DeviceUses


@dataclass(frozen=True, slots=True)
class Counted:
    """What the settled guests have of each PCI provider."""

    classes: Mapping[ProviderUuid, str]
    """The class of each PCI provider."""
    amounts: Mapping[ProviderUuid, Mapping[ConsumerUuid, int]]
    """By provider: how many of its devices each settled guest has."""
    known: frozenset[ConsumerUuid] = frozenset()
    """The consumers that have records."""


Surplus = tuple[ConsumerUuid, ProviderUuid, int, int]
"""A guest that holds more of a card than it has devices of it: guest, provider, how many it has,
how many it holds.
"""


@dataclass(frozen=True, slots=True)
class AllocationRepair:
    """The corrections that allocations of devices need."""

    move: AllocationMove | None = None
    """The allocations before and after; None if none is to change."""
    drift: tuple[Drift, ...] = ()
    """What stays wrong."""


def counted(part: DeviceProviders, tree: ProviderTree, uses: DeviceUses) -> Counted:
    """Return the counts of ``part`` for the providers that ``tree`` has."""
    there = {
        tree.provider(provider.name).uuid: provider
        for provider in part.providers.values()
        if tree.exists(provider.name)
    }
    amounts = {
        uuid: Counter(use.owner for use in provider.uses if use.owner in uses.settled)
        for uuid, provider in there.items()
    }
    known = uses.known.union(uses.settled, (use.owner for use in uses.uses))
    return Counted(
        {uuid: provider.resource_class for uuid, provider in there.items()}, amounts, known
    )


def wrong_owners(count: Counted, consumers: Consumers) -> list[ConsumerUuid]:
    """Return the guests whose allocation differs from the devices that they have. ``consumers``: of
    the whole tree.
    """
    return sorted({owner for owner, *_ in _differences(count, consumers)})


def surpluses(count: Counted, consumers: Consumers) -> frozenset[Surplus]:
    """Return the guests that hold more than they have."""
    return frozenset(
        difference for difference in _differences(count, consumers) if _is_surplus(difference)
    )


def to_correct(
    count: Counted, consumers: Consumers, lowered: Collection[Surplus]
) -> list[ConsumerUuid]:
    """Return the guests whose allocation is to be written. ``lowered``: surpluses that have lasted
    long enough.
    """
    return sorted(
        {
            difference[0]
            for difference in _differences(count, consumers)
            if (
                difference in lowered
                if _is_surplus(difference)
                else not _strangers(count, consumers, difference[1])
            )
        }
    )


def strangers(count: Counted, consumers: Consumers) -> frozenset[ConsumerUuid]:
    """Return the consumers without a record that hold something of a card of which a guest holds
    less than it has.
    """
    return frozenset(
        stranger
        for difference in _differences(count, consumers)
        if not _is_surplus(difference)
        for stranger in _strangers(count, consumers, difference[1])
    )


def plan_repair(
    count: Counted,
    consumers: Consumers,
    allocations: Mapping[ConsumerUuid, Allocation],
    target: ProviderTree,
    node: Collection[ProviderUuid],
    lowered: Collection[Surplus] = (),
) -> AllocationRepair:
    """Plan the corrections.

    ``allocations``: whole allocations of the consumers to correct, as just read. ``node``: the
    providers of the node; a consumer is only corrected if it holds something of them. ``lowered``:
    as in :func:`to_correct`.
    """
    left: list[Drift] = []
    before: dict[ConsumerUuid, Allocation] = {}
    after: dict[ConsumerUuid, Allocation] = {}
    free = {
        uuid: capacity(target.provider(uuid).inventory[name]) - _used(consumers.get(uuid, {}), name)
        for uuid, name in count.classes.items()
        if name in target.provider(uuid).inventory
    }
    for difference in _differences(count, consumers):
        owner, uuid, amount, has = difference
        name, provider = count.classes[uuid], target.name_of(uuid)
        if (remedy := _remedy_of_uncertain(difference, count, consumers, lowered)) is not None:
            left.append(mismatch(owner, provider, name, has, amount, remedy))
            continue
        allocation = after.get(owner) or allocations.get(owner)
        if allocation is None or not any(held in node for held in allocation.resources):
            continue
        held_here = allocation.resources.get(uuid, {})
        more = amount - held_here.get(name, 0)
        if more > free.get(uuid, 0):
            left.append(
                mismatch(
                    owner,
                    provider,
                    name,
                    has,
                    amount,
                    "free some of it, or correct the reserved amount",
                )
            )
            continue
        free[uuid] = free.get(uuid, 0) - more
        if more:
            before.setdefault(owner, allocations[owner])
            resources = {**allocation.resources, uuid: {**held_here, name: amount}}
            after[owner] = replace(allocation, resources=resources)
    return AllocationRepair(
        AllocationMove(before, after, whole=False) if after else None, tuple(left)
    )


def _remedy_of_uncertain(
    difference: Surplus, count: Counted, consumers: Consumers, lowered: Collection[Surplus]
) -> str | None:
    """Return when the difference will be corrected, or what to do, if it may still be right; None
    if it is to be corrected now.
    """
    if _is_surplus(difference):
        if difference in lowered:
            return None
        owner, uuid, amount, has = difference
        return (
            "it is lowered if that stays so and no task of it is open; else: agent allocation "
            f"remove {owner} {uuid} {count.classes[uuid]}={has - amount}"
        )
    if strangers_here := _strangers(count, consumers, difference[1]):
        return (
            f"it is corrected once consumer {strangers_here[0]}, which may hold it for a move of "
            "that instance, is on record or holds nothing of it any more"
        )
    return None


def unknown_shares(
    count: Counted, consumers: Consumers, uses: DeviceUses, tree: ProviderTree
) -> Iterator[Drift]:
    """Yield what guests of the node hold of cards of which they have no device. Not corrected,
    because Placement may be right and the records wrong.
    """
    for consumer, uuid, amount in _unknown(count, consumers, uses):
        yield mismatch(
            consumer,
            tree.name_of(uuid),
            count.classes[uuid],
            amount,
            0,
            f"if it has none: agent allocation remove {consumer} {uuid} "
            f"{count.classes[uuid]}={amount}",
        )


def holders_of_unknown_shares(
    count: Counted, consumers: Consumers, uses: DeviceUses
) -> frozenset[ConsumerUuid]:
    """Return the consumers of :func:`unknown_shares`."""
    return frozenset(consumer for consumer, *_ in _unknown(count, consumers, uses))


def _unknown(
    count: Counted, consumers: Consumers, uses: DeviceUses
) -> Iterator[tuple[ConsumerUuid, ProviderUuid, int]]:
    for uuid, name in count.classes.items():
        for consumer, resources in sorted(consumers.get(uuid, {}).items()):
            if (
                name in resources
                and consumer in uses.settled
                and consumer not in count.amounts[uuid]
            ):
                yield consumer, uuid, resources[name]


def mismatch(
    owner: ConsumerUuid, provider: str, name: str, has: int, amount: int, remedy: str
) -> Drift:
    """Return the drift of an allocation that stays as it is."""
    return Drift(
        "allocation-mismatch",
        "warning",
        f"instance {owner} holds {has} {name} of {printable(provider)} instead of {amount}",
        remedy,
        consumer=owner,
    )


def all_wrong(
    count: Counted, consumers: Consumers, tree: ProviderTree, remedy: str
) -> Iterator[Drift]:
    """Yield every difference as drift, for a pass in which nothing can be written."""
    for owner, uuid, amount, has in _differences(count, consumers):
        yield mismatch(owner, tree.name_of(uuid), count.classes[uuid], has, amount, remedy)


def _differences(count: Counted, consumers: Consumers) -> Iterator[Surplus]:
    """Yield guest, provider, how many of its devices the guest has, and how many it holds, where
    these differ; only for guests that hold anything of the tree.
    """
    known = {consumer for held in consumers.values() for consumer in held}
    for uuid, amounts in count.amounts.items():
        for owner, amount in sorted(amounts.items()):
            has = consumers.get(uuid, {}).get(owner, {}).get(count.classes[uuid], 0)
            if has != amount and owner in known:
                yield owner, uuid, amount, has


def _strangers(count: Counted, consumers: Consumers, uuid: ProviderUuid) -> list[ConsumerUuid]:
    """Return the consumers without a record that hold something of a card, sorted."""
    return sorted(
        consumer
        for consumer, held in consumers.get(uuid, {}).items()
        if count.classes[uuid] in held and consumer not in count.known
    )


def _is_surplus(difference: Surplus) -> bool:
    _, _, amount, has = difference
    return has > amount


def _used(held: Mapping[ConsumerUuid, Mapping[str, int]], name: str) -> int:
    return sum(resources.get(name, 0) for resources in held.values())
