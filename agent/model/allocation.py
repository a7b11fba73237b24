"""A consumer's allocations, whole, as one frozen value."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from agent.model.names import ConsumerUuid, ProviderUuid

Resources = Mapping[str, int]
# What is held, or asked for, by provider.
Holdings = Mapping[ProviderUuid, Resources]


@dataclass(frozen=True, slots=True)
class Allocation:
    """All that one consumer holds, on every provider, also those of other hosts.

    ``generation`` is the consumer's, ``None`` when Placement does not know the consumer;
    ``provider_generations`` are those of the providers when it was read, for drivers to see;
    ``consumer_type`` is ``None`` where there is none or it was not asked for.
    """

    consumer: ConsumerUuid
    resources: Holdings
    project_id: str
    user_id: str
    generation: int | None
    provider_generations: Mapping[ProviderUuid, int] = field(default_factory=dict)
    consumer_type: str | None = None

    def as_driver_dict(self) -> dict[str, Any]:
        """The shape that ``update_provider_tree`` receives and edits in place."""
        body = self.as_body()
        for uuid, entry in body["allocations"].items():
            if uuid in self.provider_generations:
                entry["generation"] = self.provider_generations[uuid]
        return body

    def as_body(self) -> dict[str, Any]:
        """The shape that Placement takes in a write."""
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
        """This consumer with the resources of an edited driver dict; its owner and generation stay
        the server's.

        A provider of which nothing is left is left out: Placement refuses an entry without
        resources.
        """
        resources = {
            ProviderUuid(uuid): dict(entry["resources"])
            for uuid, entry in record["allocations"].items()
            if entry["resources"]
        }
        return type(self)(self.consumer, resources, self.project_id, self.user_id, self.generation)
