"""Units: single named resources behind a resource class, such as persistent-memory namespaces."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.model.names import ProviderUuid


@dataclass(frozen=True, slots=True)
class AssignableUnit:
    """One unit as the driver reports it. Placement only counts units of ``resource_class``."""

    resource_class: str
    identifier: str
    """Identifies the unit on its provider."""
    provider: str | None = None
    """The suffix after the node's name in the name of the provider that counts the unit; None for
    the root.
    """
    metadata: Mapping[str, str] = field(default_factory=dict)

    def provider_name(self, node: str) -> str:
        """Return the name of the provider that counts the unit on the node called ``node``."""
        return node + (self.provider or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRecord:
    """One unit of one node. Placement only counts units of ``resource_class`` on ``provider``; the
    record says which unit a claim has.
    """

    node: ProviderUuid
    provider: ProviderUuid
    resource_class: str
    identifier: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    holder: str | None = None
    """The id of the claim that has it, or None."""
    present: bool = True
    """Whether the host still has it."""
    version: int = 0
    """See :mod:`agent.model.node_records`."""
