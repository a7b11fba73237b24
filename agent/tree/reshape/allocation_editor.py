"""The allocations of a node's consumers while they are being moved, in the form in which drivers edit them too."""

from collections.abc import Container, Iterable, Mapping
from typing import Any

import os_resource_classes as orc

from agent.driver.interface import Allocations
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.provider_tree import ProviderTree

OF_HOSTS = frozenset({orc.VCPU, orc.PCPU, orc.MEMORY_MB, orc.DISK_GB})

Share = tuple[ConsumerUuid, ProviderUuid, int]
"""A consumer, a provider, and how much of a class he has there."""


class AllocationEditor:
    """``allocations``: by consumer, edited in place. What is taken and not given again is noticed by the core."""

    def __init__(self, allocations: Allocations) -> None:
        self._allocations = allocations

    def holders(self, resource_class: str, providers: Iterable[ProviderUuid]) -> list[Share]:
        """Consumer, provider and amount of everything of that class on these providers, sorted."""
        wanted = frozenset(providers)
        return sorted(
            (ConsumerUuid(consumer), ProviderUuid(uuid), resources[resource_class])
            for consumer, record in self._allocations.items()
            for uuid, resources in _entries(record).items()
            if uuid in wanted and resources.get(resource_class)
        )

    def holds_outside(self, consumer: str, tree: ProviderTree, besides: Container[ProviderUuid]) -> bool:
        """Whether the consumer has CPUs, memory or disk of a provider that is neither in ``tree`` nor among ``besides``, as another host's are."""
        return any(
            not tree.exists(uuid) and ProviderUuid(uuid) not in besides and not resources.keys().isdisjoint(OF_HOSTS)
            for uuid, resources in _entries(self._allocations[consumer]).items()
        )

    def take(self, consumer: str, provider: str, resource_class: str, amount: int) -> None:
        """Take so much of what the consumer has there."""
        resources = self._allocations[consumer]["allocations"][provider]["resources"]
        resources[resource_class] -= amount
        if not resources[resource_class]:
            del resources[resource_class]

    def give(self, consumer: str, provider: str, resource_class: str, amount: int) -> None:
        """Add so much to what the consumer has there."""
        resources = self._allocations[consumer]["allocations"].setdefault(provider, {"resources": {}})["resources"]
        resources[resource_class] = resources.get(resource_class, 0) + amount


def _entries(record: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    return {uuid: entry["resources"] for uuid, entry in record["allocations"].items()}
