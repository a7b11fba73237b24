"""An assignable unit: one named thing that a host has behind a resource class, such as a persistent-memory namespace."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class AssignableUnit:
    """Placement only counts units of ``resource_class``; ``identifier`` tells them apart on their provider.

    ``provider``: what follows the node's name in the name of the provider that counts the unit, None for the root.
    """

    resource_class: str
    identifier: str
    provider: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    def provider_name(self, node: str) -> str:
        """The name of the provider that counts the unit of the node called ``node``."""
        return node + (self.provider or "")
