"""Sending a reshape: of a plan, or of many inventories at once; and reading back the generations,
which Placement's answer does not contain.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
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
from agent.model.names import ProviderUuid, name_first
from agent.model.operation import Reshape, SetInventory
from agent.placement.client import PlacementClient
from agent.placement.flush_state import Attempt, FlushState
from agent.placement.sending import not_done

LOG = logging.getLogger(__name__)

# Answers to a reshape that may have been applied all the same: a failure after the write, or of a
# proxy in front of Placement.
OUTCOME_UNKNOWN = frozenset({401, 413, 500})
# How many providers or consumers a message names.
NAMED = 3


class ReshapeRequest:
    """One reshape request of a flush."""

    def __init__(
        self, client: PlacementClient, state: FlushState, root: ProviderUuid, operation: Reshape
    ) -> None:
        self.client, self.state, self.root, self.operation = client, state, root, operation

    def run(self) -> None:
        """Send the reshape of a plan and record the result.

        :raises ReshapeFailed: the server refused for good.
        :raises StopFlush: the rest of the plan must not be sent.
        """
        try:
            self._send()
        except PlacementRefused as refusal:
            self._record_refusal(refusal)
        except PlacementUnreachable as error:
            lost = ReshapeConflict(
                f"the answer to the reshape of {self._involved()} was lost: {error.message}",
                outcome_unknown=True,
            )
            self._record(lost if error.outcome_unknown else error)
        except (GenerationConflict, PlacementNotDone) as error:
            self._record(error)
        else:
            self._record(None)

    def _record(self, error: PlacementError | None) -> None:
        self.state.record([Attempt(self.operation, error=error)])

    def _record_refusal(self, refusal: PlacementRefused) -> None:
        if refusal.is_outage:
            self._record(refusal)
        if refusal.status in OUTCOME_UNKNOWN:
            self._record(
                ReshapeConflict(
                    f"it is unknown whether the reshape of {self._involved()} was applied: "
                    f"{refusal.message}",
                    outcome_unknown=True,
                )
            )
        in_use = refusal.placement_code == INVENTORY_IN_USE
        if in_use:
            self._hold_dropped()
        if in_use or refusal.is_conflict:
            self._record(
                ReshapeConflict(
                    f"the reshape of {self._involved()} met another change: {refusal.message}"
                )
            )
        raise ReshapeFailed(
            f"Placement refused the reshape of {self._involved()}: {refusal.message}",
            refusal.remedy,
        ) from refusal

    def _hold_dropped(self) -> None:
        """Record the classes that the reshape would drop and that are used by more than the reshape
        moves away.
        """
        operation = self.operation
        for uuid, records in operation.inventories.items():
            if dropped := operation.old_inventories[uuid].keys() - records.keys():
                left = Counter(self.client.usages(uuid))
                for consumer, old in operation.old_allocations.items():
                    left.subtract(old.resources.get(uuid, {}))
                    left.update(operation.allocations[consumer].resources.get(uuid, {}))
                if used := frozenset(name for name in dropped if left[name] > 0):
                    self.state.result.held[uuid] = used

    def _send(self) -> None:
        """Send the request and read back the generations.

        :raises GenerationConflict: a provider was changed or deleted meanwhile.
        """
        operation, tree = self.operation, self.state.tree
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
                raise GenerationConflict(f"provider {uuid} went away after the reshape")
            # A reshape raises a generation by two, by one if no inventory is left, and by one more
            # if a consumer in it holds something there afterwards: any other difference means that
            # somebody else wrote too, and then the contents have to be read.
            expected = generation + (2 if records else 1) + self._has_allocations(uuid)
            if rows[uuid].generation != expected:
                raise GenerationConflict(f"provider {uuid} was changed beside the reshape")
            tree.replace(replace(tree.provider(uuid), generation=expected, inventory=records))
        self._follow_named(
            {uuid: row.generation for uuid, row in rows.items() if uuid not in guarded}
        )

    def _follow_named(self, generations: Mapping[ProviderUuid, int]) -> None:
        """Update the generation of providers that are only named in allocations: a reshape raises
        it by one. Any other difference comes from somebody else and is found by the next read.
        """
        tree = self.state.tree
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

    def _involved(self) -> str:
        """Return the providers and consumers for a message; only the first of many."""
        return ", ".join(
            f"{kind} {name_first(sorted(uuids), NAMED, ' ')}"
            for kind, uuids in (
                ("provider", self.operation.inventories),
                ("consumer", self.operation.allocations),
            )
            if uuids
        )

    def run_as_inventories(self, operations: Sequence[SetInventory]) -> bool:
        """Send a reshape that moves nothing and stands for ``operations``; record their results.

        Return false if nothing was written and each inventory has to be sent by itself.
        """
        result = self.state.result
        error: PlacementError | None = None
        try:
            self._send()
        except PlacementRefused as refusal:
            if refusal.status == 403:
                LOG.info(
                    (
                        "the account in [placement] may not reshape; inventories are written one "
                        "by one, and it is tried again in an hour: %s"
                    ),
                    refusal.remedy,
                )
                result.capabilities = replace(result.capabilities, can_reshape=False)
            if refusal.status in (400, 403, 413) or refusal.placement_code == INVENTORY_IN_USE:
                return False
            error = (
                GenerationConflict(f"a provider was changed meanwhile: {refusal.message}")
                if refusal.is_conflict
                else refusal
            )
        except (PlacementUnreachable, PlacementNotDone, GenerationConflict) as failure:
            error = failure
        self.state.record([Attempt(operation, error=error) for operation in operations])
        return True


def write_inventories(
    client: PlacementClient,
    state: FlushState,
    root: ProviderUuid,
    operations: Sequence[SetInventory],
) -> bool:
    """Write many inventories in one request.

    Return false if nothing was written and each inventory has to be sent by itself.
    """
    together = Reshape(
        reason="",
        old_inventories={},
        inventories={operation.provider.uuid: operation.new for operation in operations},
        old_allocations={},
        allocations={},
    )
    return ReshapeRequest(client, state, root, together).run_as_inventories(operations)
