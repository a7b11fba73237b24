"""Sending single operations to Placement, and deriving the changed provider from the answer.

Every function takes the provider as the mirror has it and returns it as Placement has it
afterwards. A change by somebody else is raised as :class:`~agent.errors.GenerationConflict`: the
plan is then thrown away and made anew.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from agent.errors import (
    DUPLICATE_NAME,
    HAS_CHILDREN,
    GenerationConflict,
    PlacementError,
    PlacementNotDone,
    PlacementRefused,
    ProviderIdentityConflict,
    ProviderNameConflict,
)
from agent.model.mirror import REPARENT, Held, ServerCapabilities
from agent.model.names import ProviderUuid, child_role, child_uuid, printable
from agent.model.operation import (
    AllocationOperation,
    CreateProvider,
    DeleteProvider,
    Operation,
    ProviderRef,
    RenameProvider,
    ReparentProvider,
    SetAggregates,
    SetInventory,
    SetTraits,
)
from agent.model.provider_tree import Provider
from agent.model.report import Outcome
from agent.placement.allocations.records import holds, write
from agent.placement.answers import Row
from agent.placement.client import WITH_CODES, PlacementClient
from agent.placement.mirror import read_provider

LOG = logging.getLogger(__name__)

Contents = SetInventory | SetAggregates | SetTraits
Kind = TypeVar("Kind", bound=Operation)


@dataclass(frozen=True, slots=True)
class Attempt:
    """The result of one operation that was tried."""

    operation: Operation
    provider: Provider | None = None
    """The provider after the operation."""
    error: PlacementError | None = None
    instead: Operation | None = None
    """The operation that was done in place of ``operation``."""
    held: Held = field(default_factory=dict)
    """Classes, by provider, that the operation could not remove because they are in use."""

    def outcome(self) -> Outcome:
        """Return the outcome for the report."""
        return Outcome(
            self.instead or self.operation,
            "done" if self.error is None else "failed",
            None if self.error is None else str(self.error),
        )


def attempted(operation: Kind, send: Callable[[Kind], Attempt]) -> Attempt:
    """Return the result of ``send``, with its error if it raises one of Placement."""
    try:
        return send(operation)
    except PlacementError as error:
        return Attempt(operation, error=error)


def is_ours(operation: CreateProvider, root: ProviderRef, owned: Collection[ProviderUuid]) -> bool:
    """Return whether a child that is to be created is the agent's if it exists, wherever it is.

    Nobody else creates a provider with a uuid derived from root and role.

    :param owned: the providers that were the agent's.
    """
    wanted = operation.provider
    return operation.parent is not None and (
        wanted.uuid in owned
        or wanted.uuid == child_uuid(root.uuid, child_role(wanted.name, root.name))
    )


def create(
    client: PlacementClient,
    operation: CreateProvider,
    *,
    ours: bool,
    capabilities: ServerCapabilities,
) -> Provider | ReparentProvider:
    """Create the provider; its answer is complete, so that nothing needs to be read.

    :param ours: whether an existing provider with this uuid, wherever it is, is the agent's. Then
        somebody moved it: it is moved back, and that operation is returned.
    :raises GenerationConflict: the provider exists already as wanted, or its parent does not.
    :raises ProviderNameConflict: another provider has the name.
    :raises ProviderIdentityConflict: the uuid exists with another name or parent.
    """
    wanted = operation.provider
    try:
        row = client.create_provider(wanted.uuid, wanted.name, operation.parent)
    except PlacementRefused as error:
        if error.status == 400:
            _check_parent(client, operation, error)
        if error.status != 409 or error.placement_code != DUPLICATE_NAME:
            raise
        found = find_obstacle(client, operation, ours=ours, capabilities=capabilities)
        if found is None:
            raise GenerationConflict(
                f"provider {printable(wanted.name)} was created, renamed or deleted meanwhile"
            ) from error
        if not isinstance(found, ReparentProvider):
            raise found from error
        _put_back(client, found)
        return found
    if (row.uuid, row.name, row.parent_uuid) != (wanted.uuid, wanted.name, operation.parent):
        raise not_done(client, f"the creation of {printable(wanted.name)}")
    LOG.info("created provider %s (%s)", printable(row.name), row.uuid)
    return Provider(row.uuid, row.name, row.generation, row.parent_uuid)


def not_done(client: PlacementClient, what: str) -> PlacementNotDone:
    """Return the error for a write that the answer confirms and shows not to be done."""
    return PlacementNotDone(
        f"{client.exchange.transport.endpoint} confirmed {what}, and did not do it: its answer "
        "shows the state before",
        "have what stands in front of Placement pass writes on instead of answering them: a "
        "cache, a proxy; and see that Placement's database can be written",
    )


def _check_parent(
    client: PlacementClient, operation: CreateProvider | ReparentProvider, error: PlacementRefused
) -> None:
    """Check whether the creation or move was refused because the new parent is missing.

    :raises GenerationConflict: the parent was deleted.
    """
    if operation.parent is not None and client.provider(operation.parent) is None:
        raise GenerationConflict(
            f"the parent of {printable(operation.provider.name)} went away"
        ) from error


def find_obstacle(
    client: PlacementClient,
    operation: CreateProvider,
    *,
    ours: bool,
    capabilities: ServerCapabilities,
) -> ReparentProvider | ProviderNameConflict | ProviderIdentityConflict | None:
    """Return why a provider cannot be created, or the operation that is needed instead; ``None`` if
    nothing is in its way, or if it exists as wanted.

    The server has one error code for a name that is in use and a uuid that is in use.
    """
    wanted, name = operation.provider, printable(operation.provider.name)
    there = client.provider(wanted.uuid)
    if there is not None and (there.name, there.parent_uuid) == (wanted.name, operation.parent):
        LOG.info("adopted provider %s (%s), which was created meanwhile", name, wanted.uuid)
        return None
    if there is not None and ours and capabilities.offers(REPARENT):
        return ReparentProvider(
            provider=wanted,
            old_parent=there.parent_uuid,
            parent=operation.parent,
            reason="somebody moved it out of the tree",
        )
    if there is not None:
        return ProviderIdentityConflict(
            f"provider {wanted.uuid} is called {printable(there.name)!r} under "
            f"{there.parent_uuid or 'no parent'} in Placement, "
            f"the node wants {name!r} under {operation.parent or 'no parent'}",
            "rename or move it in Placement, or delete it there if it is a left-over",
            uuid=wanted.uuid,
            limited=ours,
        )
    holder = client.provider_named(wanted.name)
    return None if holder is None else name_conflict(wanted, holder)


def name_conflict(wanted: ProviderRef, holder: Row) -> ProviderNameConflict:
    """Return the error for a provider whose name is in use by ``holder``."""
    called = "" if holder.name == wanted.name else f", called {printable(holder.name)!r},"
    # A host without an identity yet has its name in place of a uuid.
    own = f", needed by {wanted.uuid}," if wanted.uuid != wanted.name else ""
    return ProviderNameConflict(
        (
            f"the name {printable(wanted.name)!r}{own} is held by provider {holder.uuid}{called} "
            "in Placement"
        ),
        "rename it, if it is no part of this host under another uuid; see who uses it: agent "
        f"allocation list {holder.uuid}",
        holder=holder.uuid,
        uuid=wanted.uuid,
    )


def _put_back(client: PlacementClient, operation: ReparentProvider) -> None:
    """Give a child of the agent that was moved its parent and its name back."""
    wanted = operation.provider
    try:
        client.update_provider(wanted.uuid, wanted.name, operation.parent, REPARENT)
    except PlacementRefused as error:
        raise _not_moved(client, operation, error) from error
    LOG.warning(
        "provider %s (%s) had been moved under %s; it is back",
        printable(wanted.name),
        wanted.uuid,
        operation.old_parent or "no parent",
    )


def _not_moved(
    client: PlacementClient, operation: RenameProvider | ReparentProvider, error: PlacementRefused
) -> PlacementError:
    """Return the error for a provider that could be neither renamed nor moved."""
    if error.status == 404:
        return GenerationConflict(f"provider {printable(operation.provider.name)} went away")
    if error.status == 400 and isinstance(operation, ReparentProvider):
        _check_parent(client, operation, error)
    if error.status == 409 and error.placement_code == DUPLICATE_NAME:
        holder = client.provider_named(operation.provider.name)
        if holder is None or holder.uuid == operation.provider.uuid:
            return GenerationConflict(
                f"the name {printable(operation.provider.name)} was held by somebody else for "
                "a moment"
            )
        return name_conflict(operation.provider, holder)
    return error


def delete(client: PlacementClient, operation: DeleteProvider, *, again: bool) -> bool:
    """Delete the provider. Return whether it existed.

    :param again: whether Placement confirmed this before: then it is asked whether it did it.
    :raises PlacementNotDone: it did not.
    """
    name = printable(operation.provider.name)
    try:
        was_there = client.delete_provider(operation.provider.uuid)
    except PlacementRefused as error:
        if error.status == 409 and error.placement_code == HAS_CHILDREN:
            raise GenerationConflict(f"somebody put a child below {name}") from error
        raise
    LOG.info("deleted provider %s (%s)", name, operation.provider.uuid)
    if was_there and again and client.provider(operation.provider.uuid):
        raise not_done(client, f"the deletion of {name}")
    return was_there


def write_allocations(
    client: PlacementClient, operation: AllocationOperation, *, again: bool
) -> None:
    """Write a change of one consumer's allocations, once a pass.

    A conflict concerns only this consumer, not the others and not the tree.

    :param again: see :func:`delete`.
    :raises GenerationConflict: the consumer was changed meanwhile.
    :raises PlacementNotDone: Placement confirms the change and did not do it.
    """
    wanted = operation.wanted
    try:
        write(client, wanted)
    except GenerationConflict as error:
        raise GenerationConflict(error.message, "it is tried again in the next pass") from error
    if again and not holds(client.allocation(wanted.consumer), wanted):
        raise not_done(client, f"the allocations of {wanted.consumer}")
    LOG.info("took allocations from consumer %s: %s", wanted.consumer, printable(operation.reason))


def rename_or_reparent(
    client: PlacementClient, operation: RenameProvider | ReparentProvider, present: Provider
) -> Provider:
    """Rename the provider or give it another parent. Neither is guarded by a generation nor moves
    one, so that the provider keeps the generation that its contents were read at: what others
    wrote meanwhile is read by the next pass.

    :raises GenerationConflict: the provider or its new parent was deleted.
    :raises ProviderNameConflict: another provider has the name.
    """
    try:
        if isinstance(operation, ReparentProvider):
            # With its present name: whether it can be renamed is a separate operation.
            row = client.update_provider(present.uuid, present.name, operation.parent, REPARENT)
        else:
            row = client.update_provider(
                present.uuid, operation.provider.name, present.parent_uuid, WITH_CODES
            )
    except PlacementRefused as error:
        raise _not_moved(client, operation, error) from error
    wanted = operation.parent if isinstance(operation, ReparentProvider) else row.parent_uuid
    name = present.name if isinstance(operation, ReparentProvider) else operation.provider.name
    if (row.name, row.parent_uuid) != (name, wanted):
        raise not_done(client, f"the change of {printable(name)}")
    return replace(present, name=row.name, parent_uuid=row.parent_uuid)


def set_contents(
    client: PlacementClient, operation: Contents, present: Provider, confirmed: int
) -> Provider:
    """Replace inventory, traits or aggregates, guarded by the generation of ``present``.

    :param confirmed: the generation that Placement confirmed for this operation before, 0 if never.
        If it is not reached yet, Placement is asked whether it does what it confirms.
    :raises GenerationConflict: the provider was changed or deleted meanwhile.
    :raises PlacementNotDone: the answer shows the contents, or the generation, from before; or an
        earlier answer did not, and Placement has it not.
    """
    generation = present.generation or 0
    try:
        if isinstance(operation, SetInventory):
            reached, inventory = client.set_inventories(present.uuid, generation, operation.new)
            changed = replace(present, generation=reached, inventory=inventory)
            shown = _whole_numbers(inventory) == _whole_numbers(operation.new)
        elif isinstance(operation, SetAggregates):
            reached, aggregates = client.set_aggregates(present.uuid, generation, operation.new)
            changed, shown = replace(present, generation=reached, aggregates=aggregates), True
        else:
            changed = _set_traits(client, operation, present)
            shown = changed.traits == operation.new
    except PlacementRefused as error:
        if error.status == 404 or error.is_conflict:
            raise GenerationConflict(
                f"provider {printable(present.name)} was changed meanwhile: {error.message}"
            ) from error
        raise
    # Placement raises the generation with each change of contents.
    if not shown or (changed.generation or 0) <= generation:
        raise not_done(client, f"the {operation.op} of {printable(present.name)}")
    if confirmed > generation:
        row = client.provider(changed.uuid)
        if row is not None and row.generation < (changed.generation or 0):
            raise not_done(client, f"the {operation.op} of {printable(present.name)}")
    return changed


def _whole_numbers(inventory: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return an inventory without its ratios, which a database may round."""
    return {
        name: {key: value for key, value in record.items() if key != "allocation_ratio"}
        for name, record in inventory.items()
    }


def _set_traits(client: PlacementClient, operation: SetTraits, present: Provider) -> Provider:
    """Replace the traits.

    The server answers 500 if it lost a race inside this call. The traits are then read; if they are
    unchanged the request is sent once more.

    :raises GenerationConflict: the traits were changed meanwhile.
    """
    try:
        generation, traits = client.set_traits(present.uuid, present.generation or 0, operation.new)
    except PlacementRefused as error:
        if error.status != 500:
            raise
        there = read_provider(client, Row(present.uuid, present.name, 0, present.parent_uuid))
        if there.traits == operation.new:
            return there
        if there.traits != operation.old:
            raise GenerationConflict(
                f"the traits of {printable(present.name)} were changed meanwhile"
            ) from error
        generation, traits = client.set_traits(present.uuid, there.generation or 0, operation.new)
        present = there
    return replace(present, generation=generation, traits=traits)
