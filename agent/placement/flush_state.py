"""What a flush knows while it runs: the tree as the answers show it, and the outcome of every
operation that was tried.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent.errors import (
    GenerationConflict,
    PlacementError,
    PlacementRefused,
    PlacementUnreachable,
    ProviderIdentityConflict,
)
from agent.model.inventory import inventory_changes
from agent.model.mirror import PlacementView, ServerCapabilities
from agent.model.names import ProviderUuid, child_role, child_uuid, printable
from agent.model.operation import (
    AllocationOperation,
    CreateProvider,
    DeleteProvider,
    EnsureResourceClass,
    EnsureTrait,
    Operation,
    OperationKey,
    Reshape,
    SetInventory,
    SetTraits,
)
from agent.model.provider import Provider
from agent.model.report import Outcome
from agent.placement.consumers import follow
from agent.placement.server import forget_names, with_names

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FlushContext:
    """The state before a flush."""

    may_forget: bool = True
    """Whether a refused name that the server had confirmed causes another plan; only once a pass,
    because the pass might never end otherwise.
    """
    refused: Sequence[Operation] = ()
    """Operations that the plan needs and that Placement refused before."""
    owned: Collection[ProviderUuid] = ()
    """The providers that were the agent's."""
    confirmed: Mapping[OperationKey, int] = field(default_factory=dict)
    """What Placement confirmed before, with the generation that its provider got by it, 0 if it has
    none. If that is needed again, Placement is asked whether it does it.
    """

    def owns(self, operation: CreateProvider, root: Provider) -> bool:
        """Return whether a child that is to be created is the agent's if it exists, wherever it is.

        Nobody else creates a provider with a uuid derived from root and role.
        """
        wanted = operation.provider
        return operation.parent is not None and (
            wanted.uuid in self.owned
            or wanted.uuid == child_uuid(root.uuid, child_role(wanted.name, root.name))
        )


@dataclass(frozen=True, slots=True)
class Attempt:
    """The result of one operation that was tried."""

    operation: Operation
    provider: Provider | None = None
    """The provider after the operation."""
    error: PlacementError | None = None
    instead: Operation | None = None
    """The operation that was done in place of ``operation``."""

    def outcome(self) -> Outcome:
        """Return the outcome for the report."""
        return Outcome(
            self.instead or self.operation,
            "done" if self.error is None else "failed",
            None if self.error is None else str(self.error),
        )


@dataclass(slots=True)
class FlushResult:
    """The result of a flush."""

    view: PlacementView
    capabilities: ServerCapabilities
    outcomes: list[Outcome] = field(default_factory=list)
    errors: list[PlacementError] = field(default_factory=list)
    held: dict[ProviderUuid, frozenset[str]] = field(default_factory=dict)
    """Classes, by provider, that could not be removed because they are in use."""
    conflict: PlacementError | None = None
    """Set if the plan is stale and a new one is needed."""
    outage: PlacementError | None = None
    """Set if the service cannot answer, so that the next pass tries again."""
    forgot: bool = False
    """Whether the server refused a name that it had confirmed, so that all names in
    ``capabilities`` have to be confirmed anew.
    """
    refused: list[Operation] = field(default_factory=list)
    """Operations that would be refused again if they were sent unchanged."""
    doubtful: set[ProviderUuid] = field(default_factory=set)
    """Providers with a write that may have been applied although no answer said so."""
    missing: set[ProviderUuid] = field(default_factory=set)
    """Providers that were to be deleted and that Placement did not have."""
    strangers: set[ProviderUuid] = field(default_factory=set)
    """Providers that could not be created because providers of others have their uuids."""

    @property
    def complete(self) -> bool:
        """Whether every planned operation on the tree is done."""
        return all(
            outcome.status == "done"
            for outcome in self.outcomes
            if not isinstance(outcome.operation, AllocationOperation)
        )


class StopFlush(Exception):
    """Raised to end the flush: the rest of the plan must not be sent."""


class FlushState:
    """The state of one flush, updated by every attempt."""

    def __init__(
        self,
        view: PlacementView,
        capabilities: ServerCapabilities,
        now: float,
        context: FlushContext,
    ) -> None:
        self.now, self.context = now, context
        self.tree = view.tree.copy()
        self.read_at = dict(view.read_at)
        self.consumers = dict(view.consumers)
        self.result = FlushResult(view, capabilities)
        self.outcomes: dict[OperationKey, Outcome] = {}
        self.failures: list[Operation] = list(context.refused)

    def finish(self, operations: Iterable[Operation]) -> FlushResult:
        """Return the result, with an outcome for each of ``operations``, which are the plan's."""
        result = self.result
        result.outcomes = [
            self.outcomes.get(operation.key, Outcome(operation, "skipped"))
            for operation in operations
        ]
        result.view = replace(
            result.view, tree=self.tree.freeze(), read_at=self.read_at, consumers=self.consumers
        )
        return result

    def record(self, attempts: Iterable[Attempt]) -> None:
        """Record the results of operations.

        :raises StopFlush: an error makes the rest of the plan pointless.
        """
        for attempt in attempts:
            operation, error = attempt.operation, attempt.error
            self.outcomes[operation.key] = attempt.outcome()
            if error is not None:
                self.failures.append(operation)
                self._record_failure(operation, error)
            elif attempt.instead is not None:
                self.result.conflict = GenerationConflict(
                    f"provider {_name(attempt.instead)} was put back where it belongs; its "
                    "contents have to be read"
                )
            else:
                _log(operation)
                self._record_success(operation, attempt.provider)
        if self.result.conflict or self.result.outage:
            raise StopFlush

    def _record_success(self, operation: Operation, provider: Provider | None) -> None:
        follow(self.consumers, operation)
        result = self.result
        if provider is not None:
            self._store(provider)
        elif isinstance(operation, DeleteProvider):
            self.tree.remove(operation.provider.uuid)
            self.read_at.pop(operation.provider.uuid, None)
        elif isinstance(operation, EnsureTrait):
            result.capabilities = with_names(result.capabilities, traits=[operation.name])
        elif isinstance(operation, EnsureResourceClass):
            result.capabilities = with_names(result.capabilities, classes=[operation.name])

    def _store(self, provider: Provider) -> None:
        if self.tree.exists(provider.uuid):
            if self.tree.name_of(provider.uuid) != provider.name:
                self.tree.rename(provider.uuid, provider.name)
            if provider.parent_uuid and self.tree.provider(provider.uuid).parent_uuid not in (
                None,
                provider.parent_uuid,
            ):
                self.tree.reparent(provider.uuid, provider.parent_uuid)
            self.tree.replace(provider)
        else:
            self.tree.insert(provider)
            self.read_at[provider.uuid] = self.now

    def _record_failure(self, operation: Operation, error: PlacementError) -> None:
        result = self.result
        if error.outcome_unknown:
            result.doubtful.update(providers_of(operation))
            if isinstance(operation, DeleteProvider):
                # It may be deleted: the next plan must not take that for a deletion by others.
                self.read_at.pop(operation.provider.uuid, None)
        if error.is_closed or (
            isinstance(error, GenerationConflict) and not isinstance(operation, AllocationOperation)
        ):
            result.conflict = error
        elif isinstance(error, PlacementUnreachable) or (
            isinstance(error, PlacementRefused) and (error.is_outage or error.status in (401, 403))
        ):
            result.outage = error
        elif error.is_in_use:
            self._hold(operation)
            result.errors.append(error)
        elif (
            isinstance(error, PlacementRefused)
            and error.status == 400
            and self.context.may_forget
            and self._adds_confirmed_name(operation)
        ):
            result.capabilities, result.forgot = forget_names(result.capabilities), True
            result.conflict = error
        else:
            # Operations that are sent in one request fail with one error.
            result.errors += [error] if error not in result.errors else []
            if isinstance(error, ProviderIdentityConflict):
                result.strangers.update(providers_of(operation))
            if isinstance(error, PlacementRefused) and error.status == 400:
                result.refused.append(operation)

    def _adds_confirmed_name(self, operation: Operation) -> bool:
        """Return whether the operation adds a name that the server had confirmed: somebody may have
        deleted the name since.
        """
        known = self.result.capabilities.traits | self.result.capabilities.classes
        return isinstance(operation, SetInventory | SetTraits) and any(
            name in known for name in operation.new if name not in operation.old
        )

    def _hold(self, operation: Operation) -> None:
        """Record the classes that could not be removed, so that the next plan keeps them with
        everything reserved.
        """
        if isinstance(operation, DeleteProvider):
            self.result.held[operation.provider.uuid] = frozenset(operation.inventory)
        elif isinstance(operation, SetInventory):
            self.result.held[operation.provider.uuid] = frozenset(
                operation.old.keys() - operation.new.keys()
            )


def providers_of(operation: Operation) -> Iterable[ProviderUuid]:
    """Return the providers that an operation writes."""
    if isinstance(operation, Reshape):
        return operation.inventories
    return [operation.provider.uuid] if operation.provider else []


def _name(operation: Operation) -> str:
    return printable(operation.provider.name) if operation.provider else ""


def _log(operation: Operation) -> None:
    """Log an operation that is worth a line and was not logged where it was sent."""
    if isinstance(operation, SetInventory) and operation.old:
        LOG.info(
            "inventory of %s: %s",
            printable(operation.provider.name),
            "; ".join(inventory_changes(operation.old, operation.new)),
        )
    elif isinstance(operation, Reshape):
        LOG.info(
            "reshaped %s providers and %s consumers",
            len(operation.inventories),
            len(operation.allocations),
        )
    elif isinstance(operation, AllocationOperation):
        LOG.info(
            "took allocations from consumer %s: %s",
            operation.old.consumer,
            printable(operation.reason),
        )
