"""Devices that guests have and Placement does not know of, or in another amount: what to write, and
what is left to people. Pure.

Who has nothing at all is left alone: it may be that a migration holds it for him. So is who is on
the move. Who holds more than he has may be about to get it, by a resize that the scheduler has
allocated for and nobody has claimed yet: that is told, and lowered only once it has stayed so. Then
a migration of which no record knows yet holds what he has: so nothing is raised of a card of which
a stranger holds something.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from agent.model.allocation import Allocation
from agent.model.inventory import capacity
from agent.model.mirror import Consumers
from agent.model.names import ConsumerUuid, ProviderUuid, printable
from agent.model.provider_tree import ProviderTree
from agent.model.report import Drift
from agent.placement.reshaping import AllocationMove
from agent.tree.device_providers import DeviceProviders
from agent.tree.device_uses import DeviceUses


@dataclass(frozen=True, slots=True)
class Counted:
    """The class of each provider of a card, and how much of it each settled guest has. ``known``:
    the consumers of whom there are records.
    """

    classes: Mapping[ProviderUuid, str]
    amounts: Mapping[ProviderUuid, Mapping[ConsumerUuid, int]]
    known: frozenset[ConsumerUuid] = frozenset()


Surplus = tuple[ConsumerUuid, ProviderUuid, int, int]
"""A guest that holds more of a card than it has devices of it: how many it has, and holds."""


@dataclass(frozen=True, slots=True)
class AllocationRepair:
    """``move``: who is to hold what, None if nobody is to hold anything else. ``drift``: what stays
    wrong.
    """

    move: AllocationMove | None = None
    drift: tuple[Drift, ...] = ()


def counted(part: DeviceProviders, tree: ProviderTree, uses: DeviceUses) -> Counted:
    """What ``part`` says of the providers that ``tree`` has."""
    there = {
        tree.provider(one.name).uuid: one
        for one in part.providers.values()
        if tree.exists(one.name)
    }
    amounts = {
        uuid: Counter(use.owner for use in one.uses if use.owner in uses.settled)
        for uuid, one in there.items()
    }
    known = uses.known.union(uses.settled, (use.owner for use in uses.uses))
    return Counted({uuid: one.resource_class for uuid, one in there.items()}, amounts, known)


def wrong_owners(count: Counted, consumers: Consumers) -> list[ConsumerUuid]:
    """The guests whose allocation here says something else of the devices that they have.
    ``consumers``: of the whole tree.
    """
    return sorted({owner for owner, *_ in _differences(count, consumers)})


def surpluses(count: Counted, consumers: Consumers) -> frozenset[Surplus]:
    """Those who hold more than they have."""
    return frozenset(one for one in _differences(count, consumers) if _is_surplus(one))


def to_correct(
    count: Counted, consumers: Consumers, lowered: Collection[Surplus]
) -> list[ConsumerUuid]:
    """The guests whose allocation is to be written. ``lowered``: what has been too much for long
    enough.
    """
    return sorted(
        {
            one[0]
            for one in _differences(count, consumers)
            if (one in lowered if _is_surplus(one) else not _strangers(count, consumers, one[1]))
        }
    )


def strangers(count: Counted, consumers: Consumers) -> frozenset[ConsumerUuid]:
    """The consumers without a record that hold something of a card of which a guest holds less than
    it has.
    """
    return frozenset(
        who
        for one in _differences(count, consumers)
        if not _is_surplus(one)
        for who in _strangers(count, consumers, one[1])
    )


def plan_repair(
    count: Counted,
    consumers: Consumers,
    allocations: Mapping[ConsumerUuid, Allocation],
    target: ProviderTree,
    node: Collection[ProviderUuid],
    lowered: Collection[Surplus] = (),
) -> AllocationRepair:
    """``allocations``: all that those to correct hold, as just read. ``node``: the providers of the
    node, of which an owner has to have some. ``lowered``: as in :func:`to_correct`.
    """
    left, before, after = (
        list[Drift](),
        dict[ConsumerUuid, Allocation](),
        dict[ConsumerUuid, Allocation](),
    )
    free = {
        uuid: capacity(target.provider(uuid).inventory[name]) - _used(consumers.get(uuid, {}), name)
        for uuid, name in count.classes.items()
        if name in target.provider(uuid).inventory
    }
    for one in _differences(count, consumers):
        owner, uuid, amount, has = one
        if _is_surplus(one) and one not in lowered:
            why = (
                "it is lowered if that stays so and no task of it is open; else correct its "
                "allocation with agent allocation"
            )
            left.append(
                mismatch(owner, target.name_of(uuid), count.classes[uuid], has, amount, why)
            )
            continue
        if not _is_surplus(one) and (holding := _strangers(count, consumers, uuid)):
            why = (
                f"it is corrected once consumer {holding[0]}, which may hold it for a move of "
                "that instance, is on record or holds nothing of it any more"
            )
            left.append(
                mismatch(owner, target.name_of(uuid), count.classes[uuid], has, amount, why)
            )
            continue
        whole = after.get(owner) or allocations.get(owner)
        if whole is None or not any(one in node for one in whole.resources):
            continue
        name = count.classes[uuid]
        more = amount - whole.resources.get(uuid, {}).get(name, 0)
        if more > free.get(uuid, 0):
            left.append(
                mismatch(
                    owner,
                    target.name_of(uuid),
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
            after[owner] = replace(
                whole,
                resources={
                    **whole.resources,
                    uuid: {**whole.resources.get(uuid, {}), name: amount},
                },
            )
    return AllocationRepair(
        AllocationMove(before, after, whole=False) if after else None, tuple(left)
    )


def unknown_shares(
    count: Counted, consumers: Consumers, uses: DeviceUses, tree: ProviderTree
) -> Iterator[Drift]:
    """What guests of the node hold of cards of which they have no device. Left alone: the other
    side may be the one that is right.
    """
    for consumer, uuid, amount in _unknown(count, consumers, uses):
        yield mismatch(
            consumer,
            tree.name_of(uuid),
            count.classes[uuid],
            amount,
            0,
            "correct its allocation with agent allocation",
        )


def holders_of_unknown_shares(
    count: Counted, consumers: Consumers, uses: DeviceUses
) -> frozenset[ConsumerUuid]:
    """Those of whom it would be told."""
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
    """An allocation that stays as it is."""
    detail = f"instance {owner} holds {has} {name} of {printable(provider)} instead of {amount}"
    return Drift("allocation-mismatch", "warning", detail, remedy, consumer=owner)


def all_wrong(
    count: Counted, consumers: Consumers, tree: ProviderTree, remedy: str
) -> Iterator[Drift]:
    """Every difference, where nothing can be written."""
    for owner, uuid, amount, has in _differences(count, consumers):
        yield mismatch(owner, tree.name_of(uuid), count.classes[uuid], has, amount, remedy)


def _differences(count: Counted, consumers: Consumers) -> Iterator[Surplus]:
    """Owner, provider, how much he has of its devices, how much of it he holds, be it more or less;
    for owners who hold anything of the tree.
    """
    known = {consumer for held in consumers.values() for consumer in held}
    for uuid, amounts in count.amounts.items():
        for owner, amount in sorted(amounts.items()):
            has = consumers.get(uuid, {}).get(owner, {}).get(count.classes[uuid], 0)
            if has != amount and owner in known:
                yield owner, uuid, amount, has


def _strangers(count: Counted, consumers: Consumers, uuid: ProviderUuid) -> list[ConsumerUuid]:
    """The consumers without a record that hold something of a card."""
    return sorted(
        consumer
        for consumer, held in consumers.get(uuid, {}).items()
        if count.classes[uuid] in held and consumer not in count.known
    )


def _is_surplus(one: Surplus) -> bool:
    _, _, amount, has = one
    return has > amount


def _used(held: Mapping[ConsumerUuid, Mapping[str, int]], name: str) -> int:
    return sum(resources.get(name, 0) for resources in held.values())
