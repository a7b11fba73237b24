"""Reshapes, atomic moves of inventories and of the allocations on them: building one; sending it,
or many inventories at once; and reading back the generations, which Placement's answer does not
contain.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent.errors import (
    DRIVER_FAULT,
    FRONT_STATUSES,
    INVENTORY_IN_USE,
    GenerationConflict,
    PlacementError,
    PlacementNotDone,
    PlacementRefused,
    PlacementUnreachable,
    ReshapeConflict,
    ReshapeFailed,
)
from agent.model.inventory import Allocation, Inventories, capacity, changed
from agent.model.names import ConsumerUuid, ProviderUuid, name_first, number_of, printable
from agent.model.operation import Reshape, SetInventory
from agent.model.provider_tree import PresentTree, Provider, ProviderTree, TargetTree
from agent.placement.answers import Row
from agent.placement.client import PlacementClient
from agent.placement.sending import Attempt, not_done

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
    shares = [(move.before[one].resources, move.after[one].resources) for one in consumers]
    named = {
        uuid
        for before, after in shares
        for uuid in (*before, *after)
        if before.get(uuid) != after.get(uuid)
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


LOG = logging.getLogger(__name__)

# What refuses a request for many inventories, and not each of them.
REFUSED_TOGETHER = (400, 403, 404, 413)
# By how much a reshape raises the generation of a provider that has an inventory afterwards.
REPLACED = 2


class ReshapeRequest:
    """One reshape request. ``tree``: as Placement has it; it is brought up to date."""

    def __init__(
        self, client: PlacementClient, tree: ProviderTree, root: ProviderUuid, operation: Reshape
    ) -> None:
        self.client, self.tree, self.root, self.operation = client, tree, root, operation

    def run(self) -> Attempt:
        """Send the reshape of a plan.

        :raises ReshapeFailed: the server refused for good.
        """
        try:
            self.send()
        except PlacementRefused as refusal:
            return self._refused(refusal)
        except PlacementUnreachable as error:
            lost = ReshapeConflict(
                f"the answer to the reshape of {self._involved()} was lost: {error.message}",
                error.remedy,
                outcome_unknown=True,
            )
            return Attempt(self.operation, error=lost if error.outcome_unknown else error)
        except (GenerationConflict, PlacementNotDone) as error:
            return Attempt(self.operation, error=error)
        LOG.info(
            "reshaped %s providers and %s consumers",
            len(self.operation.inventories),
            len(self.operation.allocations),
        )
        return Attempt(self.operation)

    def _refused(self, refusal: PlacementRefused) -> Attempt:
        if refusal.is_outage:
            return Attempt(self.operation, error=refusal)
        if refusal.outcome_unknown or refusal.status in FRONT_STATUSES:
            unknown = ReshapeConflict(
                f"it is unknown whether the reshape of {self._involved()} was applied: "
                f"{refusal.message}",
                refusal.remedy,
                outcome_unknown=True,
            )
            return Attempt(self.operation, error=unknown)
        in_use = refusal.placement_code == INVENTORY_IN_USE
        if in_use or refusal.is_conflict:
            met = ReshapeConflict(
                f"the reshape of {self._involved()} met another change: {refusal.message}",
                refusal.remedy,
            )
            held = dict(self._dropped_in_use()) if in_use else {}
            return Attempt(self.operation, error=met, held=held)
        raise ReshapeFailed(
            f"Placement refused the reshape of {self._involved()}: {refusal.message}",
            refusal.remedy,
        ) from refusal

    def _dropped_in_use(self) -> Iterator[tuple[ProviderUuid, frozenset[str]]]:
        """Yield the classes, by provider, that the reshape would drop and that are used by more
        than the reshape moves away.
        """
        operation = self.operation
        for uuid, records in operation.inventories.items():
            if dropped := operation.old_inventories[uuid].keys() - records.keys():
                left = Counter(self.client.usages(uuid))
                for consumer, old in operation.old_allocations.items():
                    left.subtract(old.resources.get(uuid, {}))
                    left.update(operation.allocations[consumer].resources.get(uuid, {}))
                if used := frozenset(name for name in dropped if left[name] > 0):
                    yield uuid, used

    def send(self) -> None:
        """Send the request and read back the generations.

        :raises GenerationConflict: a provider was changed or deleted meanwhile.
        """
        operation, tree = self.operation, self.tree
        guarded = {
            uuid: (tree.provider(uuid).generation or 0, records)
            for uuid, records in operation.inventories.items()
        }
        self.client.reshape(guarded, operation.allocations.values())
        rows = self._rows(guarded)
        if all(
            uuid in rows and rows[uuid].generation == generation
            for uuid, (generation, _) in guarded.items()
        ):
            raise not_done(self.client, f"the reshape of {self._involved()}")
        for uuid, (generation, records) in guarded.items():
            if uuid not in rows:
                raise GenerationConflict(
                    f"provider {self._called(uuid)} went away after the reshape"
                )
            # A reshape raises a generation by two, by one if no inventory is left, and by one more
            # if a consumer in it holds something there afterwards: any other difference means that
            # somebody else wrote too, and then the contents have to be read.
            expected = generation + (REPLACED if records else 1) + self._has_allocations(uuid)
            if rows[uuid].generation != expected:
                raise GenerationConflict(
                    f"provider {self._called(uuid)} was changed beside the reshape"
                )
            tree.replace(replace(tree.provider(uuid), generation=expected, inventory=records))
        # A reshape raises the generation of a provider that is only named in allocations by one.
        # Any other difference comes from somebody else and is found by the next read.
        for uuid, row in rows.items():
            if (
                uuid not in guarded
                and self._has_allocations(uuid)
                and tree.exists(uuid)
                and (tree.provider(uuid).generation or 0) + 1 == row.generation
            ):
                tree.set_generation(uuid, row.generation)

    def _rows(self, wanted: Collection[ProviderUuid]) -> dict[ProviderUuid, Row]:
        """Return the providers of the tree, and the others of ``wanted``, after the reshape.

        :raises ReshapeConflict: the read is refused, which says nothing of the reshape.
        """
        try:
            rows = {row.uuid: row for row in self.client.tree(self.root)}
            # Sharing providers are roots of their own.
            shared = [self.client.provider(uuid) for uuid in set(wanted) - rows.keys()]
        except PlacementRefused as error:
            if error.is_outage:
                raise
            raise ReshapeConflict(
                f"Placement confirmed the reshape of {self._involved()}, and what it came to "
                f"cannot be read: {error.message}",
                error.remedy,
                outcome_unknown=True,
            ) from error
        return rows | {row.uuid: row for row in shared if row is not None}

    def _has_allocations(self, uuid: ProviderUuid) -> bool:
        return any(
            uuid in allocation.resources for allocation in self.operation.allocations.values()
        )

    def _called(self, uuid: ProviderUuid) -> str:
        return printable(self.tree.name_of(uuid)) if self.tree.exists(uuid) else uuid

    def _involved(self) -> str:
        """Return the providers and consumers for a message; only the first of many."""
        providers = sorted(map(self._called, self.operation.inventories))
        return ", ".join(
            f"{kind} {name_first(names, separator=' ')}"
            for kind, names in (
                ("provider", providers),
                ("consumer", sorted(self.operation.allocations)),
            )
            if names
        )


def write_inventories(
    client: PlacementClient,
    tree: ProviderTree,
    root: ProviderUuid,
    operations: Sequence[SetInventory],
) -> list[Attempt]:
    """Write many inventories in one request.

    :raises PlacementRefused: nothing was written, and each inventory has to be sent by itself.
    """
    together = Reshape(
        reason="",
        old_inventories={},
        inventories={operation.provider.uuid: operation.new for operation in operations},
        old_allocations={},
        allocations={},
    )
    error = _error_of_all(ReshapeRequest(client, tree, root, together).send, REFUSED_TOGETHER)
    return [Attempt(operation, error=error) for operation in operations]


def write_new_inventories(
    client: PlacementClient, new: Sequence[tuple[Provider, SetInventory]]
) -> list[Attempt]:
    """Write the first inventories of new providers of many trees in one request.

    Placement's answer has no generations. Those that follow from the request guard the next write
    of each provider, which shows whether they are right.

    :raises PlacementRefused: nothing was written, and each inventory has to be sent by itself.
    """
    guarded = {
        provider.uuid: (provider.generation or 0, operation.new) for provider, operation in new
    }
    # Somebody changed one of the providers: the others need no other plan.
    error = _error_of_all(lambda: client.reshape(guarded, ()), (*REFUSED_TOGETHER, 409))
    return [
        Attempt(operation, error=error)
        if error is not None
        else Attempt(
            operation,
            replace(
                provider,
                generation=(provider.generation or 0) + REPLACED,
                inventory=operation.new,
            ),
        )
        for provider, operation in new
    ]


def _error_of_all(send: Callable[[], None], apart: Collection[int]) -> PlacementError | None:
    """Send a request for many inventories. Return the error that all of them have.

    :param apart: the statuses after which each is sent by itself.
    :raises PlacementRefused: the answer has one of them.
    """
    try:
        send()
    except PlacementRefused as refusal:
        if refusal.status in apart or refusal.placement_code == INVENTORY_IN_USE:
            raise
        if not refusal.is_conflict:
            return refusal
        return GenerationConflict(f"a provider was changed meanwhile: {refusal.message}")
    except (PlacementUnreachable, PlacementNotDone, GenerationConflict) as failure:
        return failure
    return None
