"""Building a reshape: an atomic move of inventories and of the allocations on them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.errors import DRIVER_FAULT, ReshapeFailed
from agent.model.inventory import Allocation, Holdings, Inventories, capacity, changed
from agent.model.names import ConsumerUuid, ProviderUuid, number_of
from agent.model.operation import Reshape
from agent.model.provider_tree import PresentTree, TargetTree

Consumers = Mapping[ConsumerUuid, Allocation]


@dataclass(frozen=True, slots=True)
class AllocationMove:
    """Allocations of consumers of the node's tree before and after a reshape."""

    before: Consumers
    after: Consumers
    whole: bool = True
    """Whether all consumers are included, because the layout of the tree changes: then all changed
    inventories are part of the reshape, else only those of providers on which an allocation
    changes.
    """

    @property
    def changed(self) -> frozenset[ConsumerUuid]:
        """The consumers whose allocations change."""
        return frozenset(
            uuid
            for uuid, allocation in self.after.items()
            if allocation.resources != self.before[uuid].resources
        )


def allocation_move(before: Consumers, edited: Mapping[str, Mapping[str, Any]]) -> AllocationMove:
    """Return the move that results from a driver's edit of the allocations.

    A driver may move allocations and replace a class by another one with the same amount.

    :raises ReshapeFailed: the driver lost or invented a consumer, a record is malformed, or the
        total amount of a consumer changed.
    """
    for consumer in sorted(before.keys() ^ edited.keys()):
        did = "dropped" if consumer in before else "invented"
        raise ReshapeFailed(
            f"driver error: it {did} consumer {consumer}", DRIVER_FAULT, consumer=consumer
        )
    after = {}
    for uuid, allocation in before.items():
        try:
            after[uuid] = allocation.edited(edited[uuid])
            held, left = _amount(allocation), _amount(after[uuid])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ReshapeFailed(
                f"driver error: the allocations of consumer {uuid} lost their form: {error!r}",
                DRIVER_FAULT,
                consumer=uuid,
            ) from error
        if left != held:
            raise ReshapeFailed(
                (
                    f"driver error: consumer {uuid} would hold {number_of(left, 'unit')} in all "
                    f"instead of {held}"
                ),
                DRIVER_FAULT,
                consumer=uuid,
            )
    return AllocationMove(before, after)


def build_reshape(
    present: PresentTree, target: TargetTree, owned: frozenset[str], move: AllocationMove
) -> Reshape:
    """Return the one operation that takes ``present`` to ``target`` for every provider involved.

    It contains providers of the agent only: those on which an allocation changes; if the move is a
    whole one also those whose inventory differs, and those that are deleted, with an empty
    inventory, so that nobody allocates there before the deletion. It contains only consumers whose
    allocations change.

    :raises ReshapeFailed: Placement would refuse the result, or it would leave an allocation
        without inventory.
    """
    consumers = move.changed
    named = {
        uuid
        for consumer in consumers
        for uuid in _shares_moved(move.before[consumer].resources, move.after[consumer].resources)
    }
    inventories: dict[ProviderUuid, Inventories] = {}
    for provider in target.providers():
        old = present.provider(provider.uuid).inventory if present.exists(provider.uuid) else {}
        if provider.uuid in owned and (
            provider.uuid in named or (move.whole and changed(old, provider.inventory))
        ):
            inventories[provider.uuid] = provider.inventory
    inventories |= {
        uuid: {}
        for uuid in present.get_provider_uuids()
        if not target.exists(uuid) and (move.whole or uuid in named)
    }
    _check(target, inventories, move)
    return Reshape(
        reason="inventory moves between providers and the allocations on it move along",
        old_inventories={
            uuid: present.provider(uuid).inventory if present.exists(uuid) else {}
            for uuid in inventories
        },
        inventories=inventories,
        old_allocations={uuid: move.before[uuid] for uuid in consumers},
        allocations={uuid: move.after[uuid] for uuid in consumers},
    )


def find_stranded(
    present: PresentTree, target: TargetTree, move: AllocationMove, *, by_driver: bool
) -> Mapping[ProviderUuid, frozenset[str]]:
    """Return the classes that ``target`` drops from providers although consumers of ``move`` still
    hold some of them there afterwards.

    :param by_driver: whether a driver made the move. A class that the driver drops on one provider
        and adds on another is not returned: that is an allocation the driver forgot to move.
    """
    there = {provider.uuid: provider.inventory.keys() for provider in present.providers()}
    made = {
        name
        for provider in target.providers()
        for name in provider.inventory
        if name not in there.get(provider.uuid, ())
    }
    found: dict[ProviderUuid, frozenset[str]] = {}
    for uuid, name in sorted(_sums(move.after)):
        kept = target.provider(uuid).inventory if target.exists(uuid) else {}
        if name in there.get(uuid, ()) and name not in kept and not (by_driver and name in made):
            found[uuid] = found.get(uuid, frozenset()) | {name}
    return found


def _check(
    target: TargetTree, inventories: Mapping[ProviderUuid, Inventories], move: AllocationMove
) -> None:
    """Check for everything that the server would refuse, or that would leave an allocation without
    inventory.

    :raises ReshapeFailed: a check fails.
    """
    for allocation in move.after.values():
        _check_consumer(allocation, target, inventories)
    before, after = _sums(move.before), _sums(move.after)
    for (provider, name), amount in after.items():
        # An existing overcommitment may stay: the server refuses only to increase it.
        if target.exists(provider) and amount > max(
            limit := capacity(_records(target, inventories, provider)[name]), before[provider, name]
        ):
            raise ReshapeFailed(
                f"provider {provider} would have {amount} {name} allocated of {limit}",
                "free some of it first",
                provider=provider,
            )


def _check_consumer(
    allocation: Allocation, target: TargetTree, inventories: Mapping[ProviderUuid, Inventories]
) -> None:
    for provider, resources in allocation.resources.items():
        for name, amount in resources.items():
            if amount < 1:
                raise ReshapeFailed(
                    f"consumer {allocation.consumer} would hold {amount} {name} on {provider}",
                    DRIVER_FAULT,
                    consumer=allocation.consumer,
                )
            if (provider in inventories or target.exists(provider)) and name not in _records(
                target, inventories, provider
            ):
                raise ReshapeFailed(
                    (
                        f"{name} is dropped from provider {provider} but used by consumer "
                        f"{allocation.consumer}"
                    ),
                    "the driver has to move that allocation too",
                    consumer=allocation.consumer,
                    provider=provider,
                )


def _shares_moved(before: Holdings, after: Holdings) -> set[ProviderUuid]:
    return {uuid for uuid in (*before, *after) if before.get(uuid) != after.get(uuid)}


def _amount(allocation: Allocation) -> int:
    return sum(
        amount for resources in allocation.resources.values() for amount in resources.values()
    )


def _sums(consumers: Consumers) -> Counter[tuple[ProviderUuid, str]]:
    """Return the total allocated amount by provider and class."""
    sums: Counter[tuple[ProviderUuid, str]] = Counter()
    for allocation in consumers.values():
        for provider, resources in allocation.resources.items():
            sums.update({(provider, name): amount for name, amount in resources.items()})
    return sums


def _records(
    target: TargetTree, inventories: Mapping[ProviderUuid, Inventories], provider: ProviderUuid
) -> Inventories:
    return inventories.get(provider) or (
        target.provider(provider).inventory if target.exists(provider) else {}
    )
