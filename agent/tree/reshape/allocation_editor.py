"""What a reshape knows about a node's guests and the storage they share, and the edits of their
allocations while they are moved, in the form that drivers edit too.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import os_resource_classes as orc

from agent.driver.interface import Allocations
from agent.errors import ReshapeFailed
from agent.model.facts import HostFacts
from agent.model.instance import PlacedCell
from agent.model.names import ConsumerUuid, ProviderUuid, name_first, printable
from agent.model.provider_tree import ProviderTree
from agent.tree.policy import Policy


def check_room(
    tree: ProviderTree, provider: str, resource_class: str, consumer: str, share: int
) -> None:
    """Check that ``provider``, a name or uuid in ``tree``, can hold a consumer's share.

    :raises ReshapeFailed: the provider gives a consumer less, or not in such steps, or nothing of
        the class.
    """
    found = tree.provider(provider) if tree.exists(provider) else None
    record = found.inventory.get(resource_class, {}) if found else {}
    # A driver may leave out max_unit: then it is the total.
    least, most, step = (
        record.get("min_unit", 1),
        record.get("max_unit", record.get("total", 0)),
        record.get("step_size", 1),
    )
    if least <= share <= most and not share % step:
        return
    offers = (
        f"gives a consumer {least} to {most} in steps of {step}" if record else "does not offer any"
    )
    name = printable(found.name if found else provider)
    raise ReshapeFailed(
        f"consumer {consumer} would have {share} {resource_class} of {name}, which {offers}",
        "give the host back what it offered before, or move or delete the consumer first",
        consumer=consumer,
    )


def reshape_failed(what: str, consumers: Iterable[str], remedy: str) -> ReshapeFailed:
    """Return the error that ``what`` is wrong because of ``consumers``, of which the message names
    the first.
    """
    users = sorted(set(consumers))
    return ReshapeFailed(
        f"{what} by {name_first(users)}",
        remedy,
        consumer=users[0],
        consumers=tuple(users),
    )


OF_HOSTS = frozenset({orc.VCPU, orc.PCPU, orc.MEMORY_MB, orc.DISK_GB})
"""Classes that tell that a consumer is placed on a host."""

Share = tuple[ConsumerUuid, ProviderUuid, int]
"""A consumer, a provider, and how much of a class the consumer holds there."""


class AllocationEditor:
    """Moves amounts between providers. ``allocations``: by consumer, edited in place.

    The core notices amounts that were taken and not given again.
    """

    def __init__(self, allocations: Allocations) -> None:
        self._allocations = allocations

    def holders(self, resource_class: str, providers: Iterable[ProviderUuid]) -> list[Share]:
        """Return consumer, provider and amount of everything of that class on these providers,
        sorted.
        """
        counting = frozenset(providers)
        return sorted(
            (ConsumerUuid(consumer), ProviderUuid(uuid), resources[resource_class])
            for consumer, record in self._allocations.items()
            for uuid, resources in _entries(record).items()
            if uuid in counting and resources.get(resource_class)
        )

    def holds_outside(
        self, consumer: str, tree: ProviderTree, besides: Container[ProviderUuid]
    ) -> bool:
        """Whether the consumer holds CPUs, memory or disk of a provider that is neither in ``tree``
        nor in ``besides``, such as another host's.
        """
        return any(
            not tree.exists(uuid)
            and ProviderUuid(uuid) not in besides
            and not resources.keys().isdisjoint(OF_HOSTS)
            for uuid, resources in _entries(self._allocations[consumer]).items()
        )

    def take(self, consumer: str, provider: str, resource_class: str, amount: int) -> None:
        """Take the amount from what the consumer holds there."""
        resources = self._allocations[consumer]["allocations"][provider]["resources"]
        resources[resource_class] -= amount
        if not resources[resource_class]:
            del resources[resource_class]

    def give(self, consumer: str, provider: str, resource_class: str, amount: int) -> None:
        """Add the amount to what the consumer holds there."""
        resources = self._allocations[consumer]["allocations"].setdefault(
            provider, {"resources": {}}
        )["resources"]
        resources[resource_class] = resources.get(resource_class, 0) + amount


def _entries(record: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    return {uuid: entry["resources"] for uuid, entry in record["allocations"].items()}


@dataclass(frozen=True, slots=True)
class GuestPlaces:
    """Where the guests of a node are placed."""

    cells: Mapping[ConsumerUuid, tuple[PlacedCell, ...]] = field(default_factory=dict)
    """By consumer, an instance or the migration that holds for it: its host cells; empty if it
    floats.
    """
    moving: Mapping[ConsumerUuid, ConsumerUuid] = field(default_factory=dict)
    """By migration that holds for an instance: the instance."""

    @property
    def pinned(self) -> Mapping[ConsumerUuid, tuple[PlacedCell, ...]]:
        """The consumers with dedicated host CPUs, and their cells."""
        return {
            consumer: cells
            for consumer, cells in self.cells.items()
            if any(cell.pins for cell in cells)
        }


@dataclass(frozen=True, slots=True)
class Sharing:
    """Providers that share DISK_GB with the tree, now or before."""

    free: Mapping[ProviderUuid, int] = field(default_factory=dict)
    """How much DISK_GB each sharing provider has left."""
    former: frozenset[ProviderUuid] = frozenset()
    """Providers outside of the tree that consumers have DISK_GB of and that are sharing providers,
    but not of this tree any more.
    """


@dataclass(frozen=True, slots=True)
class ReshapeContext:
    """What a reshape needs to know beside the trees."""

    facts: HostFacts
    policy: Policy = field(default_factory=Policy)
    places: GuestPlaces = field(default_factory=GuestPlaces)
    sharing: Sharing = field(default_factory=Sharing)
    optional_moves: bool = False
    """Optional moves are made as well, because the agent starts with this audit, or another agent
    had the node before.
    """
