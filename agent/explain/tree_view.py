"""A node's provider tree as Placement has it: inventories, usages and traits, and what of a class
each provider can give. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from agent.model.inventory import DEFAULTS, Record, capacity
from agent.model.names import ConsumerUuid, ProviderUuid


@dataclass(frozen=True, slots=True)
class ClassRoom:
    """How much of a class one provider can give to one request."""

    provider: "ProviderRoom"
    record: Record
    used: int

    @property
    def capacity(self) -> int:
        """The most that all guests together can have."""
        return capacity(self.record)

    @property
    def free(self) -> int:
        """What no guest has; below 0 if more is allocated than there is."""
        return self.capacity - self.used

    def broken_rules(self, amount: int) -> Iterator[str]:
        """Yield each rule of the inventory that the amount breaks, in words."""
        record = {**DEFAULTS, **self.record}
        if amount > self.free:
            yield f"{max(self.free, 0)} free of {self.capacity}"
        if amount < record["min_unit"]:
            yield f"min_unit {record['min_unit']}"
        if amount > record["max_unit"]:
            yield f"max_unit {record['max_unit']}"
        if amount % record["step_size"]:
            yield f"step_size {record['step_size']}"

    def most(self, amount: int) -> int:
        """Return the largest amount up to ``amount`` that the provider can give; 0 if none."""
        record = {**DEFAULTS, **self.record}
        least = min(amount, self.free, int(record["max_unit"]))
        least -= least % int(record["step_size"])
        return least if least >= max(int(record["min_unit"]), 1) else 0


@dataclass(frozen=True, slots=True)
class ProviderRoom:
    """One provider of the tree, or one that shares its resources with the tree."""

    uuid: ProviderUuid
    name: str
    inventory: Mapping[str, Record]
    used: Mapping[str, int]
    """What is allocated of each class."""
    traits: frozenset[str]
    sharing: bool = False
    """The provider is of another tree, and shares its resources."""
    holders: Mapping[ConsumerUuid, Mapping[str, int]] = field(default_factory=dict)
    """Consumer to class to amount; empty unless read."""

    def room(self, name: str) -> ClassRoom | None:
        """Return the provider's room of a class; None if the provider does not have the class."""
        record = self.inventory.get(name)
        return None if record is None else ClassRoom(self, record, self.used.get(name, 0))

    def after(self, consumer: ConsumerUuid) -> Self:
        """Return the provider without what a consumer holds of it."""
        gone = self.holders.get(consumer, {})
        used = {name: amount - gone.get(name, 0) for name, amount in self.used.items()}
        return replace(self, used=used)


@dataclass(frozen=True, slots=True)
class TreeView:
    """The tree of one node."""

    root: ProviderUuid
    providers: tuple[ProviderRoom, ...] = ()
    """Of the tree and those that share with it; empty if Placement does not have the tree."""

    @property
    def root_provider(self) -> ProviderRoom | None:
        """The root; None if Placement does not have the tree."""
        return next((provider for provider in self.providers if provider.uuid == self.root), None)

    def rooms(self, name: str) -> list[ClassRoom]:
        """Return the room of a class on each provider that has it."""
        found = (provider.room(name) for provider in self.providers)
        return [room for room in found if room is not None]

    def after(self, consumer: ConsumerUuid) -> Self:
        """Return the tree without what a consumer holds of it."""
        return replace(
            self, providers=tuple(provider.after(consumer) for provider in self.providers)
        )

    def shared_classes(self) -> frozenset[str]:
        """Return the classes that sharing providers of other trees have."""
        return frozenset(
            name for provider in self.providers if provider.sharing for name in provider.inventory
        )

    def offering(self, names: Iterable[str]) -> list[ProviderRoom]:
        """Return the providers that have one of the classes."""
        wanted = frozenset(names)
        return [provider for provider in self.providers if wanted & provider.inventory.keys()]

    def short_name(self, provider: ProviderRoom) -> str:
        """Return the provider's name without that of the node."""
        root = self.root_provider
        prefix = f"{root.name}_" if root is not None else ""
        name = provider.name
        return name.removeprefix(prefix) if prefix and len(name) > len(prefix) else name
