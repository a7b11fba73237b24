"""Allocation: all resources of one consumer, as one frozen value."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from agent.model.names import ConsumerUuid, ProviderUuid

Resources = Mapping[str, int]
# Resources that are held or requested, by provider.
Holdings = Mapping[ProviderUuid, Resources]


@dataclass(frozen=True, slots=True)
class Allocation:
    """The whole allocation of one consumer, on all providers, also of other hosts."""

    consumer: ConsumerUuid
    resources: Holdings
    project_id: str
    user_id: str
    generation: int | None
    """The consumer's; ``None`` when Placement does not know the consumer."""
    provider_generations: Mapping[ProviderUuid, int] = field(default_factory=dict)
    """The generations of the providers when the allocation was read, for drivers."""
    consumer_type: str | None = None
    """``None`` if there is none or it was not read."""
    written_at: float | None = field(default=None, compare=False)
    """Seconds since the epoch; ``None`` if Placement does not say."""

    def as_driver_dict(self) -> dict[str, Any]:
        """Return the shape that ``update_provider_tree`` receives and edits in place."""
        body = self.as_body()
        for uuid, entry in body["allocations"].items():
            if uuid in self.provider_generations:
                entry["generation"] = self.provider_generations[uuid]
        return body

    def as_body(self) -> dict[str, Any]:
        """Return the shape that Placement takes in a write."""
        return {
            "allocations": {
                uuid: {"resources": dict(resources)} for uuid, resources in self.resources.items()
            },
            "project_id": self.project_id,
            "user_id": self.user_id,
            "consumer_generation": self.generation,
            **({"consumer_type": self.consumer_type} if self.consumer_type else {}),
        }

    def edited(self, record: Mapping[str, Any]) -> Self:
        """Return the allocation with the resources of an edited driver dict; owner and generation
        stay those of the server.

        A provider without resources is left out, because Placement refuses such an entry.
        """
        resources = {
            ProviderUuid(uuid): dict(entry["resources"])
            for uuid, entry in record["allocations"].items()
            if entry["resources"]
        }
        return type(self)(self.consumer, resources, self.project_id, self.user_id, self.generation)
