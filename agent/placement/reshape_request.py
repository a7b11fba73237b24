"""Sending a reshape: of a plan, or of many inventories at once; and reading back the generations,
which Placement's answer does not contain.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from agent.errors import (
    INVENTORY_IN_USE,
    GenerationConflict,
    PlacementError,
    PlacementNotDone,
    PlacementRefused,
    PlacementUnreachable,
    ReshapeConflict,
    ReshapeFailed,
)
from agent.model.names import ProviderUuid, name_first, printable
from agent.model.operation import Reshape, SetInventory
from agent.model.provider_tree import ProviderTree
from agent.placement.client import PlacementClient
from agent.placement.sending import Attempt, log_inventory, not_done

LOG = logging.getLogger(__name__)

# Answers to a reshape that may have been applied all the same: a failure after the write, or of a
# proxy in front of Placement.
OUTCOME_UNKNOWN = frozenset({401, 413, 500})
# How many providers or consumers a message names.


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
        if refusal.status in OUTCOME_UNKNOWN:
            unknown = ReshapeConflict(
                f"it is unknown whether the reshape of {self._involved()} was applied: "
                f"{refusal.message}",
                outcome_unknown=True,
            )
            return Attempt(self.operation, error=unknown)
        in_use = refusal.placement_code == INVENTORY_IN_USE
        if in_use or refusal.is_conflict:
            met = ReshapeConflict(
                f"the reshape of {self._involved()} met another change: {refusal.message}"
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
        rows = {row.uuid: row for row in self.client.tree(self.root)}
        # Sharing providers are roots of their own.
        shared = (self.client.provider(uuid) for uuid in guarded.keys() - rows.keys())
        rows |= {row.uuid: row for row in shared if row is not None}
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
            expected = generation + (2 if records else 1) + self._has_allocations(uuid)
            if rows[uuid].generation != expected:
                raise GenerationConflict(
                    f"provider {self._called(uuid)} was changed beside the reshape"
                )
            tree.replace(replace(tree.provider(uuid), generation=expected, inventory=records))
        self._follow_named(
            {uuid: row.generation for uuid, row in rows.items() if uuid not in guarded}
        )

    def _follow_named(self, generations: Mapping[ProviderUuid, int]) -> None:
        """Update the generation of providers that are only named in allocations: a reshape raises
        it by one. Any other difference comes from somebody else and is found by the next read.
        """
        tree = self.tree
        for uuid, generation in generations.items():
            if (
                self._has_allocations(uuid)
                and tree.exists(uuid)
                and (tree.provider(uuid).generation or 0) + 1 == generation
            ):
                tree.set_generation(uuid, generation)

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
    error: PlacementError | None = None
    try:
        ReshapeRequest(client, tree, root, together).send()
    except PlacementRefused as refusal:
        if refusal.status in (400, 403, 413) or refusal.placement_code == INVENTORY_IN_USE:
            raise
        error = (
            GenerationConflict(f"a provider was changed meanwhile: {refusal.message}")
            if refusal.is_conflict
            else refusal
        )
    except (PlacementUnreachable, PlacementNotDone, GenerationConflict) as failure:
        error = failure
    else:
        for operation in operations:
            log_inventory(operation)
    return [Attempt(operation, error=error) for operation in operations]
