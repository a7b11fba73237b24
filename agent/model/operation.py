"""The operations of a plan: what will be sent to Placement, why, and what became of it.

A plan is an ordered list of these, printed by a dry run and sent by a flush: there is one list, not
two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from agent.model.allocation import Allocation, Resources
from agent.model.inventory import Inventories
from agent.model.names import ConsumerUuid, ProviderUuid


@dataclass(frozen=True, slots=True)
class ProviderRef:
    """A provider as an operation names it."""

    uuid: ProviderUuid
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One change. ``reason`` says in a few words why it is needed."""

    op: ClassVar[str]
    provider: ProviderRef | None = None
    reason: str

    @property
    def before(self) -> Any:
        """What Placement has now, in the form of the report."""
        return None

    @property
    def after(self) -> Any:
        """What it will have, in the form of the report."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderOperation(Operation):
    """A change of one provider."""

    provider: ProviderRef


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateProvider(ProviderOperation):
    """Create the provider, under ``parent`` or as a root."""

    op = "create-provider"
    parent: ProviderUuid | None

    @property
    def after(self) -> Mapping[str, Any]:
        """Name, parent and uuid."""
        return {"name": self.provider.name, "parent": self.parent, "uuid": self.provider.uuid}


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameProvider(ProviderOperation):
    """Give back the name that the driver uses. ``parent`` is only repeated in the request."""

    op = "rename-provider"
    old_name: str

    @property
    def before(self) -> str:
        """The present name."""
        return self.old_name

    @property
    def after(self) -> str:
        """The wanted name."""
        return self.provider.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ReparentProvider(ProviderOperation):
    """Move the provider under another parent (Placement 1.37)."""

    op = "reparent-provider"
    old_parent: ProviderUuid | None
    parent: ProviderUuid | None

    @property
    def before(self) -> ProviderUuid | None:
        """The present parent."""
        return self.old_parent

    @property
    def after(self) -> ProviderUuid | None:
        """The wanted parent."""
        return self.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteProvider(ProviderOperation):
    """Delete a provider of ours that the node no longer has."""

    op = "delete-provider"
    inventory: Inventories

    @property
    def before(self) -> Mapping[str, Any]:
        """Its inventories."""
        return {"name": self.provider.name, "inventories": self.inventory}


@dataclass(frozen=True, slots=True, kw_only=True)
class SetInventory(ProviderOperation):
    """Replace the whole inventory of a provider."""

    op = "set-inventory"
    old: Inventories
    new: Inventories

    @property
    def before(self) -> Inventories:
        """The present records."""
        return self.old

    @property
    def after(self) -> Inventories:
        """The wanted records, complete."""
        return self.new


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTraits(ProviderOperation):
    """Replace the traits of a provider; the new set holds everybody's traits, not only ours."""

    op = "set-traits"
    old: frozenset[str]
    new: frozenset[str]

    @property
    def before(self) -> list[str]:
        """The present traits, sorted."""
        return sorted(self.old)

    @property
    def after(self) -> list[str]:
        """The wanted traits, sorted."""
        return sorted(self.new)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAggregates(ProviderOperation):
    """Replace the aggregates of a provider; the new set holds everybody's."""

    op = "set-aggregates"
    old: frozenset[str]
    new: frozenset[str]

    @property
    def before(self) -> list[str]:
        """The present aggregates, sorted."""
        return sorted(self.old)

    @property
    def after(self) -> list[str]:
        """The wanted aggregates, sorted."""
        return sorted(self.new)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsureResourceClass(Operation):
    """Create a custom resource class unless it exists."""

    op = "ensure-resource-class"
    name: str

    @property
    def after(self) -> str:
        """The class."""
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsureTrait(Operation):
    """Create a custom trait unless it exists."""

    op = "ensure-trait"
    name: str

    @property
    def after(self) -> str:
        """The trait."""
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Reshape(Operation):
    """Move inventories and allocations in one atomic request.

    ``inventories`` and ``allocations`` are the final state; ``old_inventories`` and
    ``old_allocations`` the present one, of the same providers and consumers.
    """

    op = "reshape"
    old_inventories: Mapping[ProviderUuid, Inventories]
    inventories: Mapping[ProviderUuid, Inventories]
    old_allocations: Mapping[ConsumerUuid, Allocation]
    allocations: Mapping[ConsumerUuid, Allocation]

    @property
    def before(self) -> Mapping[str, Any]:
        """Inventories and allocations now."""
        return _reshaped(self.old_inventories, self.old_allocations)

    @property
    def after(self) -> Mapping[str, Any]:
        """Inventories and allocations wanted."""
        return _reshaped(self.inventories, self.allocations)


def _reshaped(
    inventories: Mapping[ProviderUuid, Inventories], allocations: Mapping[ConsumerUuid, Allocation]
) -> Mapping[str, Any]:
    return {
        "inventories": inventories,
        "allocations": {uuid: one.resources for uuid, one in allocations.items()},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationOperation(Operation):
    """A change of all that one consumer holds, guarded by its generation. ``old``: as it was read
    for this.
    """

    old: Allocation

    @property
    def wanted(self) -> Allocation:
        """The consumer's allocations afterwards; none at all remove it."""
        return replace(self.old, resources={})

    @property
    def before(self) -> Mapping[ConsumerUuid, Mapping[ProviderUuid, Resources]]:
        """What the consumer holds now."""
        return {self.old.consumer: self.old.resources}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAllocations(AllocationOperation):
    """Take everything from a consumer."""

    op = "delete-allocations"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAllocations(AllocationOperation):
    """Let a consumer hold ``new``, which is not empty, in place of what it holds."""

    op = "set-allocations"
    new: Mapping[ProviderUuid, Resources]

    @property
    def wanted(self) -> Allocation:
        """The consumer's allocations afterwards."""
        return replace(self.old, resources=self.new)

    @property
    def after(self) -> Mapping[ConsumerUuid, Mapping[ProviderUuid, Resources]]:
        """What the consumer will hold."""
        return {self.old.consumer: self.new}
