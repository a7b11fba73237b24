"""A consumer's allocations, whole, as one frozen value."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from agent.model.names import ConsumerUuid, ProviderUuid

Resources = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Allocation:
    """All that one consumer holds, on every provider, also those of other hosts.

    ``generation`` is the consumer's, ``None`` when Placement does not know the consumer.
    """

    consumer: ConsumerUuid
    resources: Mapping[ProviderUuid, Resources]
    project_id: str
    user_id: str
    generation: int | None
    consumer_type: str | None = None

    def as_driver_dict(self) -> dict[str, Any]:
        """The shape that ``update_provider_tree`` receives and edits in place."""
        return {
            "allocations": {uuid: {"resources": dict(resources)} for uuid, resources in self.resources.items()},
            "project_id": self.project_id,
            "user_id": self.user_id,
            "consumer_generation": self.generation,
        }

    def edited(self, record: Mapping[str, Any]) -> Self:
        """This consumer with the resources of an edited driver dict; its owner and generation stay the server's.

        A provider of which nothing is left is left out: Placement refuses an entry without resources.
        """
        resources = {ProviderUuid(uuid): dict(entry["resources"]) for uuid, entry in record["allocations"].items() if entry["resources"]}
        return type(self)(self.consumer, resources, self.project_id, self.user_id, self.generation, self.consumer_type)
