"""Devices that guests have and Placement does not know of, or in another amount: what to write, and what is left to people. Pure.

Who has nothing at all is left alone: it may be that a migration holds it for him. So is who is on the move.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from agent.desired.device_part import DevicePart
from agent.desired.device_uses import DeviceUses
from agent.model.allocation import Allocation
from agent.model.inventory import capacity
from agent.model.mirror import Consumers
from agent.model.names import ConsumerUuid, ProviderUuid, printable
from agent.model.provider_tree import ProviderTree
from agent.model.report import Drift
from agent.placement.reshaping import Move


@dataclass(frozen=True, slots=True)
class Counted:
    """The class of each provider of a card, and how much of it each settled guest has."""

    classes: Mapping[ProviderUuid, str]
    amounts: Mapping[ProviderUuid, Mapping[ConsumerUuid, int]]


@dataclass(frozen=True, slots=True)
class Healing:
    """``move``: who is to hold what, None if nobody is to hold anything else. ``drift``: what stays wrong."""

    move: Move | None = None
    drift: tuple[Drift, ...] = ()


def counted(part: DevicePart, tree: ProviderTree, uses: DeviceUses) -> Counted:
    """What ``part`` says of the providers that ``tree`` has."""
    there = {tree.provider(one.name).uuid: one for one in part.providers.values() if tree.exists(one.name)}
    amounts = {uuid: Counter(use.owner for use in one.uses if use.owner in uses.settled) for uuid, one in there.items()}
    return Counted({uuid: one.resource_class for uuid, one in there.items()}, amounts)


def wrong_owners(count: Counted, consumers: Consumers) -> list[ConsumerUuid]:
    """The guests whose allocation here says something else of the devices that they have. ``consumers``: of the whole tree."""
    return sorted({owner for owner, *_ in _differences(count, consumers)})


def heal(count: Counted, consumers: Consumers, allocations: Mapping[ConsumerUuid, Allocation], target: ProviderTree, node: Collection[ProviderUuid]) -> Healing:
    """``allocations``: all that the wrong owners hold, as just read. ``node``: the providers of the node, of which an owner has to have some."""
    left, before, after = list[Drift](), dict[ConsumerUuid, Allocation](), dict[ConsumerUuid, Allocation]()
    free = {uuid: capacity(target.provider(uuid).inventory[name]) - _used(consumers.get(uuid, {}), name)
            for uuid, name in count.classes.items() if name in target.provider(uuid).inventory}  # fmt: skip
    for owner, uuid, amount, has in _differences(count, consumers):
        whole = after.get(owner) or allocations.get(owner)
        if whole is None or not any(one in node for one in whole.resources):
            continue
        name = count.classes[uuid]
        more = amount - whole.resources.get(uuid, {}).get(name, 0)
        if more > free.get(uuid, 0):
            left.append(mismatch(owner, target.name_of(uuid), name, has, amount, "free some of it, or correct the reserved amount"))
            continue
        free[uuid] = free.get(uuid, 0) - more
        if more:
            before.setdefault(owner, allocations[owner])
            after[owner] = replace(whole, resources={**whole.resources, uuid: {**whole.resources.get(uuid, {}), name: amount}})
    return Healing(Move(before, after) if after else None, tuple(left))


def unknown_shares(count: Counted, consumers: Consumers, uses: DeviceUses, tree: ProviderTree) -> Iterator[Drift]:
    """What guests of the node hold of cards of which they have no device. Left alone: the other side may be the one that is right."""
    for uuid, name in count.classes.items():
        for consumer, resources in sorted(consumers.get(uuid, {}).items()):
            if name in resources and consumer in uses.settled and consumer not in count.amounts[uuid]:
                yield mismatch(consumer, tree.name_of(uuid), name, resources[name], 0, "correct its allocation with agent allocation")


def mismatch(owner: ConsumerUuid, provider: str, name: str, has: int, amount: int, remedy: str) -> Drift:
    """An allocation that stays as it is."""
    detail = f"instance {owner} holds {has} {name} of {printable(provider)} instead of {amount}"
    return Drift("allocation-mismatch", "warning", detail, remedy, consumer=owner)


def all_wrong(count: Counted, consumers: Consumers, tree: ProviderTree, remedy: str) -> Iterator[Drift]:
    """Every difference, where nothing can be written."""
    for owner, uuid, amount, has in _differences(count, consumers):
        yield mismatch(owner, tree.name_of(uuid), count.classes[uuid], has, amount, remedy)


def _differences(count: Counted, consumers: Consumers) -> Iterator[tuple[ConsumerUuid, ProviderUuid, int, int]]:
    """Owner, provider, how much he has of its devices, how much of it he holds; for owners who hold anything of the tree."""
    known = {consumer for held in consumers.values() for consumer in held}
    for uuid, amounts in count.amounts.items():
        for owner, amount in sorted(amounts.items()):
            has = consumers.get(uuid, {}).get(owner, {}).get(count.classes[uuid], 0)
            if has != amount and owner in known:
                yield owner, uuid, amount, has


def _used(held: Mapping[ConsumerUuid, Mapping[str, int]], name: str) -> int:
    return sum(resources.get(name, 0) for resources in held.values())
