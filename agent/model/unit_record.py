"""An assigned unit: one named thing behind a resource class, such as a
persistent-memory namespace.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.model.names import ProviderUuid


@dataclass(frozen=True, slots=True)
class AssignableUnit:
    """Placement only counts units of ``resource_class``; ``identifier`` tells them apart on their
    provider.

    ``provider``: what follows the node's name in the name of the provider that counts the unit,
    None for the root.
    """

    resource_class: str
    identifier: str
    provider: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    def provider_name(self, node: str) -> str:
        """The name of the provider that counts the unit of the node called ``node``."""
        return node + (self.provider or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRecord:
    """One unit of one node. Placement only counts units of ``resource_class`` on ``provider``; here
    it is told which.

    ``holder``: the id of the claim that has it, or None. ``present``: whether the host still has
    it. ``version``: see
    :mod:`agent.model.node_records`.
    """

    node: ProviderUuid
    provider: ProviderUuid
    resource_class: str
    identifier: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    holder: str | None = None
    present: bool = True
    version: int = 0
