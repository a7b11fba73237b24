"""Ownership journal: the providers, classes, traits and aggregates of a node that the agent itself
wrote.

What is not in the journal belongs to other writers and is kept for ever; what is in the journal can
be taken back. What was taken back leaves a tombstone, so that the agent recognizes it when a
restored database brings it back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from agent.model.names import ProviderUuid


@dataclass(frozen=True, slots=True)
class Configured:
    """The classes and traits on a provider that the agent wrote only because the operator's files
    ask for them.
    """

    classes: frozenset[str] = frozenset()
    traits: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.classes or self.traits)


@dataclass(frozen=True, slots=True)
class Ownership:
    """What the agent wrote on one of its own providers."""

    classes: frozenset[str] = frozenset()
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()
    configured: Configured = Configured()
    name: str = ""
    """The name of a child whose uuid is not derived from its name, so that another provider with
    that name is recognized as its replacement.
    """


Kind = Literal["provider", "class", "trait", "aggregate"]
KINDS: frozenset[Kind] = frozenset(get_args(Kind))


class Tombstone(NamedTuple):
    """Something of a provider that the agent wrote and took back."""

    provider: ProviderUuid
    kind: Kind
    name: str = ""
    """Empty for the provider itself."""


@dataclass(frozen=True, slots=True)
class Journal:
    """What the agent owns in the tree of one node."""

    providers: Mapping[ProviderUuid, Ownership] = field(default_factory=dict)
    adopted: bool = False
    """Whether the agent created the root, or the operator let it take the tree over; only then may
    it delete and reshape.
    """
    held: Mapping[ProviderUuid, frozenset[str]] = field(default_factory=dict)
    """Providers and those of their classes that the agent has reserved as a whole, mostly because
    the node no longer has them and consumers still use them: they stay until they are free.
    """
    version: int = field(default=0, compare=False)
    """Of the stored journal, 0 before it is stored; not a part of the content."""
    tombstones: Mapping[Tombstone, float] = field(default_factory=dict)
    """What was taken back, and when, in seconds since the epoch."""

    def owns(self, uuid: str) -> bool:
        """Return whether the provider is the agent's."""
        return uuid in self.providers

    def of(self, uuid: str) -> Ownership:
        """Return what the agent wrote on the provider; an empty value for a foreign one."""
        return self.providers.get(ProviderUuid(uuid), Ownership())
