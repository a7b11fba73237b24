"""The flush: sends the operations of a plan in order, concurrently where the order allows, and
updates the view.

A flush is no transaction. If an operation fails, what was done stays and is in the view, and
contents of unknown state are marked for reading, so that the next plan starts from Placement's real
state.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from agent.errors import (
    GenerationConflict,
    PlacementError,
    PlacementRefused,
    PlacementUnreachable,
    ProviderIdentityConflict,
    ReshapeConflict,
    ReshapeFailed,
)
from agent.model.inventory import inventory_changes
from agent.model.mirror import PlacementView, ServerCapabilities
from agent.model.names import ProviderUuid, printable
from agent.model.operation import (
    AllocationOperation,
    CreateProvider,
    DeleteProvider,
    EnsureName,
    EnsureResourceClass,
    EnsureTrait,
    Operation,
    OperationKey,
    ProviderOperation,
    ProviderRef,
    RenameProvider,
    ReparentProvider,
    Reshape,
    SetInventory,
    SetTraits,
)
from agent.model.provider_tree import Provider
from agent.model.report import Outcome
from agent.placement import sending
from agent.placement.client import NameKind, PlacementClient
from agent.placement.consumers import follow
from agent.placement.plan import Plan, depends, names_needed
from agent.placement.reshaping import (
    ReshapeRequest,
    write_inventories,
    write_new_inventories,
)
from agent.placement.sending import Attempt, Contents, Kind, attempted
from agent.placement.server import with_names

LOG = logging.getLogger(__name__)

# From this many inventories on, one reshape that moves nothing and one read of the generations are
# fewer requests.
BULK = 3

OfProvider = TypeVar("OfProvider", bound=ProviderOperation)


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
    failed: ReshapeFailed | None = None
    """Set if Placement refused to move allocations: nothing after the reshape was sent."""
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


class Flush:
    """One flush of one plan: the tree as the answers show it, and the outcome of every operation
    that was tried.
    """

    def __init__(
        self,
        client: PlacementClient,
        plan: Plan,
        view: PlacementView,
        capabilities: ServerCapabilities,
        root: ProviderUuid,
        now: float,
        *,
        may_forget: bool = True,
        refused: Sequence[Operation] = (),
        owned: Collection[ProviderUuid] = (),
        confirmed: Mapping[OperationKey, int] = MappingProxyType({}),
    ) -> None:
        """Prepare the flush.

        :param may_forget: whether a refused name that the server had confirmed causes another plan;
            only once a pass, because the pass might never end otherwise.
        :param refused: operations that the plan needs and that Placement refused before.
        :param owned: the providers that were the agent's.
        :param confirmed: what Placement confirmed before, with the generation that its provider got
            by it, 0 if it has none. If that is needed again, Placement is asked whether it does it.
        """
        self.client, self.plan, self.root, self.now = client, plan, root, now
        self.may_forget, self.owned, self.confirmed = may_forget, owned, confirmed
        self.result = FlushResult(view, capabilities)
        self.tree = view.tree.copy()
        self.read_at = dict(view.read_at)
        self.consumers = dict(view.consumers)
        self.outcomes: dict[OperationKey, Outcome] = {}
        self.new = {
            operation.provider.uuid
            for operation in plan.operations
            if isinstance(operation, CreateProvider)
        }
        self.failures: list[Operation] = list(refused)

    def run(self) -> FlushResult:
        """Send every operation that can be sent and is not sent yet. Return the result, with the
        view that follows from Placement's answers.
        """
        result = self.result
        if not self._stopped:
            with suppress(StopFlush):
                self._send_tree()
                self._try_each(
                    self._possible(self._of(AllocationOperation)), self._write_allocations
                )
        result.outcomes = [
            self.outcomes.get(operation.key, Outcome(operation, "skipped"))
            for operation in self.plan.operations
        ]
        result.view = replace(
            result.view, tree=self.tree.freeze(), read_at=self.read_at, consumers=self.consumers
        )
        return result

    def create(self) -> None:
        """Send the creation of a new node, so that its inventory can be written together with those
        of others: see :func:`write_together`.
        """
        with suppress(StopFlush):
            self._try_each(self._possible(self._of(CreateProvider)), self._create)

    def new_inventories(self) -> list[tuple[Provider, SetInventory]]:
        """Return the inventory of the new node that can be written now, with its provider."""
        if self._stopped or not self.result.capabilities.can_reshape:
            return []
        return [
            (self.tree.provider(operation.provider.uuid), operation)
            for operation in self._possible(self._of(SetInventory))
        ]

    @property
    def _stopped(self) -> bool:
        result = self.result
        return not (result.conflict is None and result.outage is None and result.failed is None)

    def _send_tree(self) -> None:
        """Send every operation that concerns providers and names, kind by kind in the order of
        :func:`agent.placement.plan.make_plan`, which has the reasons.
        """
        for rename in self._of(RenameProvider):
            self._try_each(self._possible([rename]), self._rename_or_reparent)
        for wave in self._by_depth(self._of(CreateProvider), deepest_first=False):
            self._try_each(self._possible(wave), self._create)
        self._ensure_names()
        for reparent in self._of(ReparentProvider):
            self._try_each(self._possible([reparent]), self._rename_or_reparent)
        for reshape in self._of(Reshape):
            if self._possible([reshape]):
                try:
                    attempt = ReshapeRequest(self.client, self.tree, self.root, reshape).run()
                except ReshapeFailed as error:
                    self.outcomes[reshape.key] = Outcome(reshape, "failed", str(error))
                    self.result.failed = error
                    raise StopFlush from error
                self.record([attempt])
            else:
                # The providers that the reshape was to empty are not deleted.
                self.failures.append(reshape)
        self._delete_all(self._possible(self._of(DeleteProvider)))
        self._set_all(
            [one for one in self._possible(self._of(Operation)) if isinstance(one, Contents)]
        )

    def _of(self, kind: type[Kind]) -> list[Kind]:
        """Return the operations of a kind that are not sent yet."""
        return [
            operation
            for operation in self.plan.operations
            if isinstance(operation, kind) and operation.key not in self.outcomes
        ]

    def _possible(self, operations: Iterable[Kind]) -> list[Kind]:
        """Return the operations that do not depend on a failed one."""
        if not self.failures:
            return list(operations)
        return [
            operation
            for operation in operations
            if not depends(operation, self.failures, self.plan.target.tree)
        ]

    def _try_each(self, operations: Sequence[Kind], send: Callable[[Kind], Attempt]) -> None:
        """Try operations that do not depend on each other.

        :raises StopFlush: an error makes the rest of the plan pointless.
        """
        self.record(self.client.exchange.each(partial(attempted, send=send), operations))

    def _by_depth(
        self, operations: Sequence[OfProvider], *, deepest_first: bool
    ) -> list[list[OfProvider]]:
        """Return operations grouped by equal depth in the tree."""
        target, waves = self.plan.target.tree, dict[int, list[OfProvider]]()
        for operation in operations:
            uuid = operation.provider.uuid
            tree = target if target.exists(uuid) else self.tree
            waves.setdefault(tree.depth(uuid), []).append(operation)
        return [waves[depth] for depth in sorted(waves, reverse=deepest_first)]

    # --- single operations ------------------------------------------------------------------------

    def _create(self, operation: CreateProvider) -> Attempt:
        root = ProviderRef(self.root, self.plan.target.tree.name_of(self.root))
        created = sending.create(
            self.client,
            operation,
            ours=sending.is_ours(operation, root, self.owned),
            capabilities=self.result.capabilities,
        )
        if isinstance(created, ReparentProvider):
            return Attempt(operation, instead=created)
        return Attempt(operation, created)

    def _ensure_names(self) -> None:
        """Create the names that an operation needs which can still be sent."""
        needed = frozenset[str]().union(*map(names_needed, self._possible(self._of(Operation))))
        self._try_each(
            [operation for operation in self._of(EnsureName) if operation.name in needed],
            self._ensure,
        )

    def _ensure(self, operation: EnsureName) -> Attempt:
        kind: NameKind = "traits" if isinstance(operation, EnsureTrait) else "resource_classes"
        self.client.ensure_name(kind, operation.name)
        return Attempt(operation)

    def _rename_or_reparent(self, operation: RenameProvider | ReparentProvider) -> Attempt:
        present = self.tree.provider(operation.provider.uuid)
        return Attempt(operation, sending.rename_or_reparent(self.client, operation, present))

    def _write_allocations(self, operation: AllocationOperation) -> Attempt:
        sending.write_allocations(self.client, operation, again=operation.key in self.confirmed)
        return Attempt(operation)

    # --- deletions --------------------------------------------------------------------------------

    def _delete_all(self, operations: Sequence[DeleteProvider]) -> None:
        tree, blocked = self.tree, set[ProviderUuid | None]()
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
        if not sending.delete(self.client, operation, again=operation.key in self.confirmed):
            self.result.missing.add(operation.provider.uuid)
        return Attempt(operation)

    # --- contents ---------------------------------------------------------------------------------

    def _set_all(self, operations: Sequence[Contents]) -> None:
        inventories = [operation for operation in operations if isinstance(operation, SetInventory)]
        if len(inventories) >= BULK and self._set_together(inventories):
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
            self.record(attempt for attempts in sent for attempt in attempts)

    def _set_together(self, inventories: Sequence[SetInventory]) -> bool:
        """Write many inventories in one request. Return false if nothing was written and each has
        to be sent by itself.
        """
        if not self.result.capabilities.can_reshape:
            return False
        try:
            attempts = write_inventories(self.client, self.tree, self.root, inventories)
        except PlacementRefused as refusal:
            _note_refusal([self], refusal)
            return False
        self.record(attempts)
        return True

    def _set_contents(self, operations: Sequence[Contents]) -> list[Attempt]:
        """Send the writes of one provider, each with the generation of the answer before."""
        present = self.tree.provider(operations[0].provider.uuid)
        attempts = list[Attempt]()
        for operation in operations:
            confirmed = 0 if present.uuid in self.new else self.confirmed.get(operation.key, 0)
            try:
                present = sending.set_contents(self.client, operation, present, confirmed)
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

    # --- what follows from the answers ------------------------------------------------------------

    def record(self, attempts: Iterable[Attempt]) -> None:
        """Record the results of operations.

        :raises StopFlush: an error makes the rest of the plan pointless.
        """
        for attempt in attempts:
            operation, error = attempt.operation, attempt.error
            self.outcomes[operation.key] = attempt.outcome()
            self.result.held |= attempt.held
            if error is not None:
                self.failures.append(operation)
                self._record_failure(operation, error)
            elif attempt.instead is not None:
                self.result.conflict = GenerationConflict(
                    f"provider {_name(attempt.instead)} was put back where it belongs; its "
                    "contents have to be read"
                )
            else:
                self._record_success(operation, attempt.provider)
        if self.result.conflict or self.result.outage:
            raise StopFlush

    def _record_success(self, operation: Operation, provider: Provider | None) -> None:
        follow(self.consumers, operation)
        result = self.result
        if isinstance(operation, SetInventory) and operation.old:
            LOG.info(
                "inventory of %s: %s",
                _name(operation),
                "; ".join(inventory_changes(operation.old, operation.new)),
            )
        if provider is not None and self.tree.exists(provider.uuid):
            if self.tree.name_of(provider.uuid) != provider.name:
                self.tree.rename(provider.uuid, provider.name)
            if provider.parent_uuid and self.tree.provider(provider.uuid).parent_uuid not in (
                None,
                provider.parent_uuid,
            ):
                self.tree.reparent(provider.uuid, provider.parent_uuid)
            self.tree.replace(provider)
        elif provider is not None:
            self.tree.insert(provider)
            self.read_at[provider.uuid] = self.now
        elif isinstance(operation, DeleteProvider):
            self.tree.remove(operation.provider.uuid)
            self.read_at.pop(operation.provider.uuid, None)
        elif isinstance(operation, EnsureTrait):
            result.capabilities = with_names(result.capabilities, traits=[operation.name])
        elif isinstance(operation, EnsureResourceClass):
            result.capabilities = with_names(result.capabilities, classes=[operation.name])

    def _record_failure(self, operation: Operation, error: PlacementError) -> None:
        result = self.result
        # A reshape that was applied has moved the generation of each of its providers.
        if error.outcome_unknown and not isinstance(error, ReshapeConflict):
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
            and self.may_forget
            and (result.forgot or self._adds_confirmed_name(operation))
        ):
            result.forgot = True
            result.capabilities = replace(
                result.capabilities, traits=frozenset(), classes=frozenset()
            )
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


def write_together(client: PlacementClient, flushes: Sequence[Flush]) -> None:
    """Write the inventories of the new nodes of many flushes in one request. If Placement refuses
    it, each flush sends its own.
    """
    waiting = [(flush, *new) for flush in flushes for new in flush.new_inventories()]
    if len(waiting) < 2:
        return
    try:
        attempts = write_new_inventories(client, [(there, new) for _, there, new in waiting])
    except PlacementRefused as refusal:
        _note_refusal(flushes, refusal)
        return
    for (flush, _, _), attempt in zip(waiting, attempts, strict=True):
        with suppress(StopFlush):
            flush.record([attempt])


def _note_refusal(flushes: Iterable[Flush], refusal: PlacementRefused) -> None:
    """Note that no inventories are to be written together for a while, if it is not allowed."""
    if refusal.status not in (403, 404):
        return
    LOG.info(
        "inventories are written one by one, because Placement refused to reshape (status %s); it "
        "is tried again in an hour: %s",
        refusal.status,
        refusal.remedy,
    )
    for flush in flushes:
        flush.result.capabilities = replace(flush.result.capabilities, can_reshape=False)


def providers_of(operation: Operation) -> Iterable[ProviderUuid]:
    """Return the providers that an operation writes."""
    if isinstance(operation, Reshape):
        return operation.inventories
    return [operation.provider.uuid] if operation.provider else []


def _name(operation: Operation) -> str:
    return printable(operation.provider.name) if operation.provider else ""
