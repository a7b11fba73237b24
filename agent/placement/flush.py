"""The flush: sends the operations of a plan in order, concurrently where the order allows, and
updates the view.

A flush is no transaction. If an operation fails, what was done stays and is in the view, and
contents of unknown state are marked for reading, so that the next plan starts from Placement's real
state.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import cast

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
from agent.model.names import ProviderUuid, child_uuid, name_first, printable
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
from agent.model.provider_tree import Provider
from agent.model.report import OperationStatus, Outcome
from agent.placement import codes, sending
from agent.placement.allocations.writing import write
from agent.placement.client import PlacementClient
from agent.placement.consumers import follow
from agent.placement.names import forget_names, with_names
from agent.placement.plan import Plan, depends, names_needed

LOG = logging.getLogger(__name__)

# From this many inventories on, one reshape that moves nothing and one read of the generations are
# fewer requests.
BULK = 3
# Answers to a reshape that may have been applied all the same: a failure after the write, or of a
# proxy in front of Placement.
OUTCOME_UNKNOWN = frozenset({401, 413, 500})
# How many providers or consumers a message names.
NAMED = 3

Contents = SetInventory | SetAggregates | SetTraits


@dataclass(frozen=True, slots=True)
class Attempt:
    """The result of one operation that was tried."""

    operation: Operation
    provider: Provider | None = None
    """The provider after the operation."""
    error: PlacementError | None = None
    instead: Operation | None = None
    """The operation that was done in place of ``operation``."""


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
            one.status == "done"
            for one in self.outcomes
            if not isinstance(one.operation, AllocationOperation)
        )


class _Stop(Exception):
    """Raised to end the flush: the rest of the plan must not be sent."""


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

    def owns(self, operation: CreateProvider, root: ProviderUuid) -> bool:
        """Return whether a child that is to be created is the agent's if it exists, wherever it is.

        Nobody else creates a provider with a uuid derived from root and name.
        """
        wanted = operation.provider
        return operation.parent is not None and (
            wanted.uuid in self.owned or wanted.uuid == child_uuid(root, wanted.name)
        )


_NOTHING = FlushContext()


class Flush:
    """One flush of one plan."""

    def __init__(
        self,
        client: PlacementClient,
        plan: Plan,
        view: PlacementView,
        capabilities: ServerCapabilities,
        root: ProviderUuid,
        now: float,
        before: FlushContext,
    ) -> None:
        self.client, self.plan, self.root, self.now, self.before = client, plan, root, now, before
        self.tree = view.tree.copy()
        self.read_at = dict(view.read_at)
        self.consumers = dict(view.consumers)
        self.result = FlushResult(view, capabilities)
        self._tried: dict[int, Outcome] = {}
        self._failures: list[Operation] = list(before.refused)

    def run(self) -> FlushResult:
        """Send every operation that can be sent."""
        operations = self.plan.operations
        with suppress(_Stop):
            self._tree(operations)
        if self.result.conflict is None and self.result.outage is None:
            with suppress(_Stop):
                self._each(self._of(AllocationOperation), self._allocations)
        result = self.result
        result.outcomes = [self._tried.get(id(one), Outcome(one, "skipped")) for one in operations]
        result.view = replace(
            result.view, tree=self.tree.freeze(), read_at=self.read_at, consumers=self.consumers
        )
        return result

    def _tree(self, operations: Sequence[Operation]) -> None:
        """Send every operation that concerns providers and names."""
        for wave in self._by_depth(self._of(CreateProvider), deepest_first=False):
            self._each(self._possible(wave), self._create)
        needed = frozenset[str]().union(*(names_needed(one) for one in self._possible(operations)))
        self._each(
            [
                one
                for one in operations
                if isinstance(one, EnsureResourceClass | EnsureTrait) and one.name in needed
            ],
            self._ensure,
        )
        for one in operations:
            if isinstance(one, RenameProvider | ReparentProvider):
                self._each(self._possible([one]), self._move)
        for one in operations:
            if isinstance(one, Reshape):
                if self._possible([one]):
                    self._reshape(one)
                else:
                    # The providers that the reshape was to empty are not deleted.
                    self._failures.append(one)
        self._delete_all(self._possible(self._of(DeleteProvider)))
        self._set_all(
            [
                one
                for one in self._possible(operations)
                if isinstance(one, SetInventory | SetAggregates | SetTraits)
            ]
        )

    def _of(self, kind: type[Operation]) -> list[Operation]:
        return [one for one in self.plan.operations if isinstance(one, kind)]

    def _possible(self, operations: Iterable[Operation]) -> list[Operation]:
        """Return the operations that do not depend on a failed one."""
        return [
            one for one in operations if not depends(one, self._failures, self.plan.target.tree)
        ]

    # --- trying -----------------------------------------------------------------------------------

    def _each(self, operations: Sequence[Operation], send: Callable[[Operation], Attempt]) -> None:
        """Try operations that do not depend on each other; end the flush if an error makes the
        rest pointless.
        """
        self._record(self.client.exchange.each(lambda one: _try(one, send), operations))

    def _record(self, results: Iterable[Attempt]) -> None:
        for done in results:
            status: OperationStatus = "done" if done.error is None else "failed"
            self._tried[id(done.operation)] = Outcome(
                done.instead or done.operation,
                status,
                None if done.error is None else str(done.error),
            )
            if done.error is not None:
                self._failures.append(done.operation)
                self._failed(done.operation, done.error)
                continue
            if done.instead is not None:
                self.result.conflict = GenerationConflict(
                    f"provider {_name(done.instead)} was put back where it belongs; what it "
                    "has has to be read"
                )
                continue
            _log(done.operation)
            follow(self.consumers, done.operation)
            if done.provider is not None:
                self._store(done.provider)
            elif isinstance(done.operation, DeleteProvider):
                self.tree.remove(done.operation.provider.uuid)
                self.read_at.pop(done.operation.provider.uuid, None)
            elif isinstance(done.operation, EnsureTrait):
                self.result.capabilities = with_names(
                    self.result.capabilities, traits=[done.operation.name]
                )
            elif isinstance(done.operation, EnsureResourceClass):
                self.result.capabilities = with_names(
                    self.result.capabilities, classes=[done.operation.name]
                )
        if self.result.conflict or self.result.outage:
            raise _Stop

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

    def _failed(self, operation: Operation, error: PlacementError) -> None:
        result = self.result
        if codes.may_be_applied(error):
            result.doubtful.update(_about(operation))
        if isinstance(error, GenerationConflict) and not isinstance(operation, AllocationOperation):
            result.conflict = error
        elif isinstance(error, PlacementUnreachable) or (
            isinstance(error, PlacementRefused)
            and (codes.is_outage(error) or error.status in (401, 403))
        ):
            result.outage = error
            if isinstance(operation, DeleteProvider):
                # It may be deleted: the next pass must not take that for a deletion by others.
                self.read_at.pop(operation.provider.uuid, None)
        elif isinstance(error, PlacementRefused) and codes.is_in_use(error):
            self._hold(operation)
            result.errors.append(error)
        elif (
            isinstance(error, PlacementRefused)
            and error.status == 400
            and self.before.may_forget
            and self._confirmed(operation)
        ):
            result.capabilities, result.forgot = forget_names(result.capabilities), True
            result.conflict = error
        else:
            result.errors.append(error)
            if isinstance(error, ProviderIdentityConflict):
                result.strangers.update(_about(operation))
            if isinstance(error, PlacementRefused) and error.status == 400:
                result.refused.append(operation)

    def _confirmed(self, operation: Operation) -> bool:
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

    def _hold_dropped(self, operation: Reshape) -> None:
        """Record the classes that a reshape would drop and that are used by more than the reshape
        moves away.
        """
        for uuid, records in operation.inventories.items():
            if dropped := operation.old_inventories[uuid].keys() - records.keys():
                left = Counter(self.client.usages(uuid))
                for consumer, old in operation.old_allocations.items():
                    left.subtract(old.resources.get(uuid, {}))
                    left.update(operation.allocations[consumer].resources.get(uuid, {}))
                if used := frozenset(name for name in dropped if left[name] > 0):
                    self.result.held[uuid] = used

    # --- the steps --------------------------------------------------------------------------------

    def _create(self, operation: Operation) -> Attempt:
        one = cast(CreateProvider, operation)
        found = sending.create(
            self.client,
            one,
            ours=self.before.owns(one, self.root),
            capabilities=self.result.capabilities,
        )
        return (
            Attempt(one, instead=found)
            if isinstance(found, ReparentProvider)
            else Attempt(one, found)
        )

    def _ensure(self, operation: Operation) -> Attempt:
        if isinstance(operation, EnsureTrait):
            self.client.ensure_trait(operation.name)
        elif isinstance(operation, EnsureResourceClass):
            self.client.ensure_resource_class(operation.name)
        return Attempt(operation)

    def _allocations(self, operation: Operation) -> Attempt:
        """Send a change of one consumer's allocations, once a pass.

        A conflict concerns only this consumer, not the others and not the tree.
        """
        try:
            write(self.client, cast(AllocationOperation, operation).wanted)
        except GenerationConflict as error:
            raise GenerationConflict(error.message, "it is tried again in the next pass") from error
        return Attempt(operation)

    def _move(self, operation: Operation) -> Attempt:
        one = cast(RenameProvider | ReparentProvider, operation)
        return Attempt(one, sending.move(self.client, one, self.tree.provider(one.provider.uuid)))

    def _by_depth(
        self, operations: Sequence[Operation], *, deepest_first: bool
    ) -> list[list[Operation]]:
        """Return operations grouped by equal depth in the tree."""

        def depth(operation: Operation) -> int:
            uuid = cast(ProviderOperation, operation).provider.uuid
            tree = self.plan.target.tree if self.plan.target.tree.exists(uuid) else self.tree
            return tree.depth(uuid)

        ordered = sorted(operations, key=depth, reverse=deepest_first)
        return [list(wave) for _, wave in groupby(ordered, key=depth)]

    def _delete_all(self, operations: Sequence[Operation]) -> None:
        blocked: set[ProviderUuid | None] = set()

        def send(operation: Operation) -> Attempt:
            if not sending.delete(self.client, cast(DeleteProvider, operation)):
                self.result.missing.update(_about(operation))
            return Attempt(operation)

        for wave in self._by_depth(operations, deepest_first=True):
            # A provider keeps its parent if a child was to be moved away and could not be.
            blocked.update(
                uuid
                for one in wave
                if self.tree.children(uuid := cast(DeleteProvider, one).provider.uuid)
            )
            self._each(
                [one for one in wave if cast(DeleteProvider, one).provider.uuid not in blocked],
                send,
            )
            left = [
                uuid
                for one in wave
                if self.tree.exists(uuid := cast(DeleteProvider, one).provider.uuid)
            ]
            blocked.update(self.tree.provider(uuid).parent_uuid for uuid in left)

    # --- inventories ------------------------------------------------------------------------------

    def _reshape(self, operation: Reshape) -> None:
        """Move allocated inventory.

        :raises ReshapeFailed: the server refused for good.
        """
        try:
            self._rewrite(operation)
        except PlacementRefused as error:
            if codes.is_outage(error):
                self._record([Attempt(operation, error=error)])
            if error.status in OUTCOME_UNKNOWN:
                lost = ReshapeConflict(
                    f"nobody knows what became of the reshape of {_involved(operation)}: "
                    f"{error.message}"
                )
                self._record([Attempt(operation, error=lost)])
            if error.placement_code == codes.INVENTORY_IN_USE:
                self._hold_dropped(operation)
            if codes.is_conflict(error) or error.placement_code == codes.INVENTORY_IN_USE:
                self._record(
                    [
                        Attempt(
                            operation,
                            error=ReshapeConflict(
                                f"the reshape of {_involved(operation)} met another change: "
                                f"{error.message}"
                            ),
                        )
                    ]
                )
            raise ReshapeFailed(
                f"Placement refused the reshape of {_involved(operation)}: {error.message}",
                error.remedy,
            ) from error
        except PlacementUnreachable as error:
            lost = ReshapeConflict(
                f"the answer to the reshape of {_involved(operation)} was lost: {error.message}"
            )
            self._record([Attempt(operation, error=lost if error.outcome_unknown else error)])
        except GenerationConflict as error:
            self._record([Attempt(operation, error=error)])
        else:
            self._record([Attempt(operation)])

    def _rewrite(self, operation: Reshape) -> None:
        """Send a reshape and read back the generations, which its answer does not contain."""
        guarded = {
            uuid: (self.tree.provider(uuid).generation or 0, records)
            for uuid, records in operation.inventories.items()
        }
        self.client.reshape(guarded, operation.allocations.values())
        rows = {row.uuid: row for row in self.client.tree(self.root)}
        for uuid, (generation, records) in guarded.items():
            if uuid not in rows:
                raise GenerationConflict(f"provider {uuid} went away after the reshape")
            # A reshape raises a generation by two, by one if no inventory is left, and by one more
            # if a consumer in it holds something there afterwards: any other difference means that
            # somebody else wrote too, and then the contents have to be read.
            expected = generation + (2 if records else 1) + self._has_allocations(operation, uuid)
            if rows[uuid].generation != expected:
                raise GenerationConflict(f"provider {uuid} was changed beside the reshape")
            self.tree.replace(
                replace(self.tree.provider(uuid), generation=expected, inventory=records)
            )
        self._follow_named(
            operation, {uuid: row.generation for uuid, row in rows.items() if uuid not in guarded}
        )

    def _follow_named(self, operation: Reshape, now: Mapping[ProviderUuid, int]) -> None:
        """Update the generation of providers that are only named in allocations: a reshape raises
        it by one. Any other difference comes from somebody else and is found by the next read.
        """
        for uuid, generation in now.items():
            if (
                self._has_allocations(operation, uuid)
                and self.tree.exists(uuid)
                and (self.tree.provider(uuid).generation or 0) + 1 == generation
            ):
                self.tree.set_generation(uuid, generation)

    @staticmethod
    def _has_allocations(operation: Reshape, uuid: ProviderUuid) -> int:
        return int(any(uuid in one.resources for one in operation.allocations.values()))

    def _set_all(self, operations: Sequence[Contents]) -> None:
        inventories = [one for one in operations if isinstance(one, SetInventory)]
        if (
            len(inventories) >= BULK
            and self.result.capabilities.can_reshape
            and self._in_one(inventories)
        ):
            operations = [one for one in operations if not isinstance(one, SetInventory)]
        chains: dict[ProviderUuid, list[Contents]] = {}
        for one in operations:
            chains.setdefault(one.provider.uuid, []).append(one)
        for wave in self._by_depth([chain[0] for chain in chains.values()], deepest_first=True):
            sent = self.client.exchange.each(
                lambda one: self._chain(chains[cast(Contents, one).provider.uuid]), wave
            )
            self._record([done for chain in sent for done in chain])

    def _in_one(self, operations: Sequence[SetInventory]) -> bool:
        """Write many inventories in one request.

        Return false if nothing was written and each inventory has to be sent by itself.
        """
        together = Reshape(
            reason="",
            old_inventories={},
            inventories={one.provider.uuid: one.new for one in operations},
            old_allocations={},
            allocations={},
        )
        error: PlacementError | None = None
        try:
            self._rewrite(together)
        except PlacementRefused as refused:
            if refused.status == 403:
                LOG.info(
                    (
                        "the account in [placement] may not reshape; inventories are written one "
                        "by one, and it is tried again in an hour: %s"
                    ),
                    refused.remedy,
                )
                self.result.capabilities = replace(self.result.capabilities, can_reshape=False)
            if (
                refused.status in (400, 403, 413)
                or refused.placement_code == codes.INVENTORY_IN_USE
            ):
                return False
            error = (
                GenerationConflict(f"a provider was changed meanwhile: {refused.message}")
                if codes.is_conflict(refused)
                else refused
            )
        except (PlacementUnreachable, GenerationConflict) as failure:
            error = failure
        self._record([Attempt(one, error=error) for one in operations])
        return True

    def _chain(self, operations: Sequence[Contents]) -> list[Attempt]:
        """Send the writes of one provider, each with the generation of the answer before."""
        present, results = self.tree.provider(operations[0].provider.uuid), list[Attempt]()
        for one in operations:
            try:
                present = sending.set_contents(self.client, one, present)
            except PlacementError as error:
                results.append(Attempt(one, error=error))
                # A provider that should lose its inventory loses its traits as well, but it needs
                # them for as long as it is in use.
                emptied = isinstance(one, SetInventory) and not one.new
                if emptied or not (isinstance(error, PlacementRefused) and codes.is_in_use(error)):
                    break
            else:
                results.append(Attempt(one, present))
        return results


def _involved(operation: Reshape) -> str:
    """Return the providers and consumers of a reshape for a message; only the first of many."""
    return ", ".join(
        f"{kind} {name_first(sorted(uuids), NAMED, ' ')}"
        for kind, uuids in (
            ("provider", operation.inventories),
            ("consumer", operation.allocations),
        )
        if uuids
    )


def _about(operation: Operation) -> Iterable[ProviderUuid]:
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


def _try(operation: Operation, send: Callable[[Operation], Attempt]) -> Attempt:
    try:
        return send(operation)
    except PlacementError as error:
        return Attempt(operation, error=error)


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

    def look(operation: Operation) -> Attempt:
        if isinstance(operation, CreateProvider) and operation.parent is not None:
            found = sending.taken(
                client, operation, ours=before.owns(operation, root), capabilities=capabilities
            )
            return (
                Attempt(operation, error=found)
                if isinstance(found, PlacementError)
                else Attempt(operation, instead=found)
            )
        renaming = cast(RenameProvider, operation)
        holder = client.provider_named(renaming.provider.name)
        return Attempt(
            renaming, error=sending.name_held(renaming, holder) if holder is not None else None
        )

    named = [
        one
        for one in plan.operations
        if isinstance(one, RenameProvider)
        or (isinstance(one, CreateProvider) and one.parent is not None)
    ]
    looked = {
        id(done.operation): done
        for done in client.exchange.each(lambda one: _try(one, look), named)
    }
    failed = [
        *before.refused,
        *(done.operation for done in looked.values() if done.error is not None),
    ]
    outcomes = []
    for one in plan.operations:
        done = looked.get(id(one), Attempt(one))
        waits = done.error is None and depends(one, failed, plan.target.tree)
        failed += [one] if waits and isinstance(one, CreateProvider | Reshape) else []
        status: OperationStatus = "failed" if done.error else "skipped" if waits else "planned"
        outcomes.append(
            Outcome(done.instead or one, status, str(done.error) if done.error else None)
        )
    return outcomes, [done.error for done in looked.values() if done.error is not None]


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
    return Flush(client, plan, view, capabilities, root, now, before).run()
