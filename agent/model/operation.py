"""Operations of a plan: the changes that are sent to Placement, each with its reason.

A plan is an ordered list of operations. A dry run prints this list and a flush sends it: there is
one list, not two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from agent.model.inventory import Allocation, Inventories, Resources
from agent.model.names import ConsumerUuid, ProviderUuid

OperationKey = tuple[str, str]
"""What distinguishes an operation from all others of its plan: its kind and its subject."""


@dataclass(frozen=True, slots=True)
class ProviderRef:
    """A provider as an operation names it."""

    uuid: ProviderUuid
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One change."""

    op: ClassVar[str]
    provider: ProviderRef | None = None
    """None if the change is not about one provider."""
    reason: str
    """Why it is needed, in a few words."""

    @property
    def key(self) -> OperationKey:
        """The kind and the subject: a plan has one operation of a kind for each subject."""
        return self.op, self.provider.uuid if self.provider else ""

    @property
    def before(self) -> Any:
        """What Placement has now, in the form of the report."""
        return None

    @property
    def after(self) -> Any:
        """What Placement will have, in the form of the report."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderOperation(Operation):
    """A change of one provider."""

    provider: ProviderRef


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateProvider(ProviderOperation):
    """Create the provider."""

    op = "create-provider"
    parent: ProviderUuid | None
    """None for a root."""

    @property
    def after(self) -> Mapping[str, Any]:
        """Name, parent and uuid."""
        return {"name": self.provider.name, "parent": self.parent, "uuid": self.provider.uuid}


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameProvider(ProviderOperation):
    """Give the provider the name that the driver uses."""

    op = "rename-provider"
    old_name: str

    @property
    def before(self) -> str:
        """The present name."""
        return self.old_name

    @property
    def after(self) -> str:
        """The desired name."""
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
        """The desired parent."""
        return self.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteProvider(ProviderOperation):
    """Delete a provider of the agent that the node no longer has."""

    op = "delete-provider"
    inventory: Inventories

    @property
    def before(self) -> Mapping[str, Any]:
        """Its name and inventories."""
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
        """The desired records, complete."""
        return self.new


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNames(ProviderOperation):
    """Replace the traits or the aggregates of a provider; the new set includes those of other
    writers.
    """

    old: frozenset[str]
    new: frozenset[str]

    @property
    def before(self) -> list[str]:
        """The present names, sorted."""
        return sorted(self.old)

    @property
    def after(self) -> list[str]:
        """The desired names, sorted."""
        return sorted(self.new)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTraits(SetNames):
    """Replace the traits of a provider."""

    op = "set-traits"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAggregates(SetNames):
    """Replace the aggregates of a provider."""

    op = "set-aggregates"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsureName(Operation):
    """Create a custom resource class or trait unless it exists."""

    name: str

    @property
    def key(self) -> OperationKey:
        """The kind, and the name."""
        return self.op, self.name

    @property
    def after(self) -> str:
        """The name."""
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsureResourceClass(EnsureName):
    """Create a custom resource class unless it exists."""

    op = "ensure-resource-class"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsureTrait(EnsureName):
    """Create a custom trait unless it exists."""

    op = "ensure-trait"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reshape(Operation):
    """Move inventories and allocations in one atomic request."""

    op = "reshape"
    old_inventories: Mapping[ProviderUuid, Inventories]
    """The present inventories of the same providers."""
    inventories: Mapping[ProviderUuid, Inventories]
    """The final inventories, complete for each provider."""
    old_allocations: Mapping[ConsumerUuid, Allocation]
    """The present allocations of the same consumers."""
    allocations: Mapping[ConsumerUuid, Allocation]
    """The final allocations, complete for each consumer."""

    @property
    def before(self) -> Mapping[str, Any]:
        """Inventories and allocations now."""
        return _reshape_body(self.old_inventories, self.old_allocations)

    @property
    def after(self) -> Mapping[str, Any]:
        """Inventories and allocations afterwards."""
        return _reshape_body(self.inventories, self.allocations)


def _reshape_body(
    inventories: Mapping[ProviderUuid, Inventories], allocations: Mapping[ConsumerUuid, Allocation]
) -> Mapping[str, Any]:
    return {
        "inventories": inventories,
        "allocations": {uuid: allocation.resources for uuid, allocation in allocations.items()},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationOperation(Operation):
    """A change of one consumer's whole allocation, guarded by the consumer's generation."""

    old: Allocation
    """The allocation as it was read for this operation."""

    @property
    def key(self) -> OperationKey:
        """The kind, and the consumer."""
        return self.op, self.old.consumer

    @property
    def wanted(self) -> Allocation:
        """The consumer's allocation afterwards; an empty one is removed."""
        return replace(self.old, resources={})

    @property
    def before(self) -> Mapping[ConsumerUuid, Mapping[ProviderUuid, Resources]]:
        """The consumer's resources now."""
        return {self.old.consumer: self.old.resources}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAllocations(AllocationOperation):
    """Remove the whole allocation of a consumer."""

    op = "delete-allocations"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAllocations(AllocationOperation):
    """Replace the allocation of a consumer by ``new``."""

    op = "set-allocations"
    new: Mapping[ProviderUuid, Resources]
    """Not empty."""

    @property
    def wanted(self) -> Allocation:
        """The consumer's allocation afterwards."""
        return replace(self.old, resources=self.new)

    @property
    def after(self) -> Mapping[ConsumerUuid, Mapping[ProviderUuid, Resources]]:
        """The consumer's resources afterwards."""
        return {self.old.consumer: self.new}
