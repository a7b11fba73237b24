"""The ownership journal: which providers, classes, traits and aggregates of a node the agent itself wrote.

What is not in the journal is somebody else's and is kept for ever; what is in it can be taken back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.model.names import ProviderUuid


@dataclass(frozen=True, slots=True)
class Configured:
    """Of what the agent wrote on a provider, the classes and traits that only the operator's files asked for."""

    classes: frozenset[str] = frozenset()
    traits: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.classes or self.traits)


@dataclass(frozen=True, slots=True)
class Ownership:
    """What the agent wrote on one provider of its own."""

    classes: frozenset[str] = frozenset()
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()
    configured: Configured = Configured()


@dataclass(frozen=True, slots=True)
class Journal:
    """What is the agent's in the tree of one node.

    ``adopted``: the agent created the root, or was told to take the tree over; only then may it delete and reshape.
    ``held``: providers and their classes that the node no longer has and that somebody still uses; they stay, with
    everything reserved, until they are free.
    """

    providers: Mapping[ProviderUuid, Ownership] = field(default_factory=dict)
    adopted: bool = False
    held: Mapping[ProviderUuid, frozenset[str]] = field(default_factory=dict)

    def owns(self, uuid: str) -> bool:
        """Whether the provider is the agent's."""
        return uuid in self.providers

    def of(self, uuid: str) -> Ownership:
        """What the agent wrote on the provider; nothing, for a foreign one."""
        return self.providers.get(ProviderUuid(uuid), Ownership())
