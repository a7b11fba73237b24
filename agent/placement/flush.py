"""The flush: sends the operations of a plan in order, concurrently where the order allows, and
updates the view.

A flush is no transaction. If an operation fails, what was done stays and is in the view, and
contents of unknown state are marked for reading, so that the next plan starts from Placement's real
state.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from typing import TypeVar

from agent.errors import GenerationConflict, PlacementError
from agent.model.mirror import PlacementView, ServerCapabilities
from agent.model.names import ProviderUuid, printable
from agent.model.operation import (
    AllocationOperation,
    CreateProvider,
    DeleteProvider,
    EnsureResourceClass,
    EnsureTrait,
    Operation,
    ProviderOperation,
    RenameProvider,
    ReparentProvider,
    Reshape,
    SetAggregates,
    SetInventory,
    SetTraits,
)
from agent.model.provider import Provider
from agent.model.report import OperationStatus, Outcome
from agent.placement import sending
from agent.placement.allocations.writing import holds, write
from agent.placement.client import PlacementClient
from agent.placement.flush_state import Attempt, FlushContext, FlushResult, FlushState, StopFlush
from agent.placement.plan import Plan, depends, names_needed
from agent.placement.reshape_request import ReshapeRequest, write_inventories

__all__ = ["Flush", "FlushContext", "FlushResult", "flush", "predict_outcomes"]

# From this many inventories on, one reshape that moves nothing and one read of the generations are
# fewer requests.
BULK = 3

Contents = SetInventory | SetAggregates | SetTraits
Kind = TypeVar("Kind", bound=Operation)
OfProvider = TypeVar("OfProvider", bound=ProviderOperation)

_NOTHING = FlushContext()


class Flush:
    """One flush of one plan."""

    def __init__(
        self, client: PlacementClient, plan: Plan, state: FlushState, root: ProviderUuid
    ) -> None:
        self.client, self.plan, self.state, self.root = client, plan, state, root

    def run(self) -> FlushResult:
        """Send every operation that can be sent."""
        with suppress(StopFlush):
            self._send_tree()
        result = self.state.result
        if result.conflict is None and result.outage is None:
            with suppress(StopFlush):
                self._try_each(
                    self._possible(self._of(AllocationOperation)), self._write_allocations
                )
        return self.state.finish(self.plan.operations)

    def _send_tree(self) -> None:
        """Send every operation that concerns providers and names."""
        for rename in self._of(RenameProvider):
            self._try_each(self._possible([rename]), self._move)
        for wave in self._by_depth(self._of(CreateProvider), deepest_first=False):
            self._try_each(self._possible(wave), self._create)
        self._ensure_names()
        for reparent in self._of(ReparentProvider):
            self._try_each(self._possible([reparent]), self._move)
        for reshape in self._of(Reshape):
            if self._possible([reshape]):
                ReshapeRequest(self.client, self.state, self.root, reshape).run()
            else:
                # The providers that the reshape was to empty are not deleted.
                self.state.failures.append(reshape)
        self._delete_all(self._possible(self._of(DeleteProvider)))
        self._set_all(
            [
                operation
                for operation in self._possible(self.plan.operations)
                if isinstance(operation, SetInventory | SetAggregates | SetTraits)
            ]
        )

    def _of(self, kind: type[Kind]) -> list[Kind]:
        return [operation for operation in self.plan.operations if isinstance(operation, kind)]

    def _possible(self, operations: Iterable[Kind]) -> list[Kind]:
        """Return the operations that do not depend on a failed one."""
        return [
            operation
            for operation in operations
            if not depends(operation, self.state.failures, self.plan.target.tree)
        ]

    def _try_each(self, operations: Sequence[Kind], send: Callable[[Kind], Attempt]) -> None:
        """Try operations that do not depend on each other.

        :raises StopFlush: an error makes the rest of the plan pointless.
        """
        self.state.record(
            self.client.exchange.each(lambda operation: _try(operation, send), operations)
        )

    def _by_depth(
        self, operations: Sequence[OfProvider], *, deepest_first: bool
    ) -> list[list[OfProvider]]:
        """Return operations grouped by equal depth in the tree."""

        def depth(operation: OfProvider) -> int:
            uuid, target = operation.provider.uuid, self.plan.target.tree
            return (target if target.exists(uuid) else self.state.tree).depth(uuid)

        ordered = sorted(operations, key=depth, reverse=deepest_first)
        return [list(wave) for _, wave in groupby(ordered, key=depth)]

    # --- single operations ------------------------------------------------------------------------

    def _create(self, operation: CreateProvider) -> Attempt:
        state = self.state
        created = sending.create(
            self.client,
            operation,
            ours=state.context.owns(operation, self.plan.target.tree.provider(self.root)),
            capabilities=state.result.capabilities,
        )
        if isinstance(created, ReparentProvider):
            return Attempt(operation, instead=created)
        return Attempt(operation, created)

    def _ensure_names(self) -> None:
        """Create the names that an operation needs which can still be sent."""
        needed = frozenset[str]().union(*map(names_needed, self._possible(self.plan.operations)))
        self._try_each(
            [
                operation
                for operation in self.plan.operations
                if isinstance(operation, EnsureResourceClass | EnsureTrait)
                and operation.name in needed
            ],
            self._ensure,
        )

    def _ensure(self, operation: EnsureResourceClass | EnsureTrait) -> Attempt:
        if isinstance(operation, EnsureTrait):
            self.client.ensure_trait(operation.name)
        else:
            self.client.ensure_resource_class(operation.name)
        return Attempt(operation)

    def _move(self, operation: RenameProvider | ReparentProvider) -> Attempt:
        present = self.state.tree.provider(operation.provider.uuid)
        return Attempt(operation, sending.move(self.client, operation, present))

    def _write_allocations(self, operation: AllocationOperation) -> Attempt:
        """Send a change of one consumer's allocations, once a pass.

        A conflict concerns only this consumer, not the others and not the tree.
        """
        try:
            write(self.client, operation.wanted)
        except GenerationConflict as error:
            raise GenerationConflict(error.message, "it is tried again in the next pass") from error
        wanted = operation.wanted
        if operation.key in self.state.context.confirmed and not holds(
            self.client.allocation(wanted.consumer), wanted
        ):
            raise sending.not_done(self.client, f"the allocations of {wanted.consumer}")
        return Attempt(operation)

    # --- deletions --------------------------------------------------------------------------------

    def _delete_all(self, operations: Sequence[DeleteProvider]) -> None:
        tree, blocked = self.state.tree, set[ProviderUuid | None]()
        for wave in self._by_depth(operations, deepest_first=True):
            # A provider keeps its parent if a child was to be moved away and could not be.
            uuids = [operation.provider.uuid for operation in wave]
            blocked.update(uuid for uuid in uuids if tree.children(uuid))
            self._try_each(
                [operation for operation in wave if operation.provider.uuid not in blocked],
                self._delete,
            )
            blocked.update(tree.provider(uuid).parent_uuid for uuid in uuids if tree.exists(uuid))

    def _delete(self, operation: DeleteProvider) -> Attempt:
        if not sending.delete(self.client, operation):
            self.state.result.missing.add(operation.provider.uuid)
        elif operation.key in self.state.context.confirmed and self.client.provider(
            operation.provider.uuid
        ):
            name = printable(operation.provider.name)
            raise sending.not_done(self.client, f"the deletion of {name}")
        return Attempt(operation)

    # --- contents ---------------------------------------------------------------------------------

    def _set_all(self, operations: Sequence[Contents]) -> None:
        inventories = [operation for operation in operations if isinstance(operation, SetInventory)]
        if (
            len(inventories) >= BULK
            and self.state.result.capabilities.can_reshape
            and write_inventories(self.client, self.state, self.root, inventories)
        ):
            operations = [
                operation for operation in operations if not isinstance(operation, SetInventory)
            ]
        chains: dict[ProviderUuid, list[Contents]] = {}
        for operation in operations:
            chains.setdefault(operation.provider.uuid, []).append(operation)
        for wave in self._by_depth([chain[0] for chain in chains.values()], deepest_first=True):
            sent = self.client.exchange.each(
                lambda first: self._set_contents(chains[first.provider.uuid]), wave
            )
            self.state.record(attempt for attempts in sent for attempt in attempts)

    def _set_contents(self, operations: Sequence[Contents]) -> list[Attempt]:
        """Send the writes of one provider, each with the generation of the answer before."""
        present = self.state.tree.provider(operations[0].provider.uuid)
        attempts = list[Attempt]()
        for operation in operations:
            try:
                present = self._confirmed(
                    operation, present, sending.set_contents(self.client, operation, present)
                )
            except PlacementError as error:
                attempts.append(Attempt(operation, error=error))
                # A provider that should lose its inventory loses its traits as well, but it needs
                # them for as long as it is in use.
                emptied = isinstance(operation, SetInventory) and not operation.new
                if emptied or not error.is_in_use:
                    break
            else:
                attempts.append(Attempt(operation, present))
        return attempts

    def _confirmed(self, operation: Contents, before: Provider, after: Provider) -> Provider:
        """Return ``after``, what an answer shows.

        :raises PlacementNotDone: an earlier answer did so too, and Placement has it not.
        """
        created = {one.provider.uuid for one in self._of(CreateProvider)}
        confirmed = self.state.context.confirmed.get(operation.key, 0)
        if confirmed > (before.generation or 0) and before.uuid not in created:
            row = self.client.provider(after.uuid)
            if row is not None and row.generation < (after.generation or 0):
                raise sending.not_done(
                    self.client, f"the {operation.op} of {printable(after.name)}"
                )
        return after


def _try(operation: Kind, send: Callable[[Kind], Attempt]) -> Attempt:
    try:
        return send(operation)
    except PlacementError as error:
        return Attempt(operation, error=error)


def flush(
    client: PlacementClient,
    plan: Plan,
    view: PlacementView,
    capabilities: ServerCapabilities,
    root: ProviderUuid,
    now: float,
    before: FlushContext = _NOTHING,
) -> FlushResult:
    """Send ``plan`` and return the result with the view that follows from Placement's answers.

    :raises ReshapeFailed: the server refused to move allocations; the operations before it are
        done.
    """
    return Flush(client, plan, FlushState(view, capabilities, now, before), root).run()


def predict_outcomes(
    client: PlacementClient,
    plan: Plan,
    capabilities: ServerCapabilities,
    root: ProviderUuid,
    before: FlushContext,
) -> tuple[list[Outcome], list[PlacementError]]:
    """Return the outcomes of ``plan`` as far as names and uuids decide them, and the errors: what a
    dry run shows. Only GETs are sent.
    """

    def predict(operation: CreateProvider | RenameProvider) -> Attempt:
        if isinstance(operation, CreateProvider):
            ours = before.owns(operation, plan.target.tree.provider(root))
            found = sending.find_obstacle(client, operation, ours=ours, capabilities=capabilities)
            if isinstance(found, PlacementError):
                return Attempt(operation, error=found)
            return Attempt(operation, instead=found)
        wanted, error = operation.provider, None
        holder = client.provider_named(wanted.name)
        # A server that compares names without case answers with the provider itself.
        if holder is not None and holder.uuid != wanted.uuid:
            error = sending.name_conflict(wanted, holder)
        return Attempt(operation, error=error)

    named = [
        operation
        for operation in plan.operations
        if isinstance(operation, RenameProvider)
        or (isinstance(operation, CreateProvider) and operation.parent is not None)
    ]
    predicted = {
        attempt.operation.key: attempt
        for attempt in client.exchange.each(lambda operation: _try(operation, predict), named)
    }
    failed = [
        *before.refused,
        *(attempt.operation for attempt in predicted.values() if attempt.error is not None),
    ]
    outcomes = []
    for operation in plan.operations:
        attempt = predicted.get(operation.key, Attempt(operation))
        waits = attempt.error is None and depends(operation, failed, plan.target.tree)
        failed += [operation] if waits and isinstance(operation, CreateProvider | Reshape) else []
        status: OperationStatus = "failed" if attempt.error else "skipped" if waits else "planned"
        outcomes.append(replace(attempt.outcome(), status=status))
    return outcomes, [attempt.error for attempt in predicted.values() if attempt.error is not None]
