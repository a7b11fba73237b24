"""Ownership journal: the providers, classes, traits and aggregates of a node that the agent itself
wrote.

What is not in the journal belongs to other writers and is kept for ever; what is in the journal can
be taken back. What was taken back leaves a tombstone, so that the agent recognizes it when a
restored database brings it back.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
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

    def union(self, other: "Configured") -> "Configured":
        """Return the classes and traits of both."""
        return Configured(self.classes | other.classes, self.traits | other.traits)


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

    def union(self, later: "Ownership") -> "Ownership":
        """Return what is in either; the name is that of ``later``, if it has one."""
        return Ownership(
            self.classes | later.classes,
            self.traits | later.traits,
            self.aggregates | later.aggregates,
            self.configured.union(later.configured),
            later.name or self.name,
        )


Held = Mapping[ProviderUuid, frozenset[str]]
"""Classes by provider."""

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
    held: Held = field(default_factory=dict)
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

    def without(self, providers: Container[ProviderUuid]) -> "Journal":
        """Return the journal without ``providers``."""
        kept = {uuid: own for uuid, own in self.providers.items() if uuid not in providers}
        return replace(self, providers=kept)

    def union(self, after: "Journal") -> "Journal":
        """Return the journal of what is the agent's if any part of the change from this journal to
        ``after`` was done. It has neither version nor tombstones.
        """
        return Journal(
            {
                uuid: self.of(uuid).union(after.of(uuid))
                for uuid in (*self.providers, *after.providers)
            },
            after.adopted,
            join_held(self.held, after.held),
        )


def join_held(first: Held, second: Held) -> Held:
    """Return the classes that are in either, by provider."""
    return {
        uuid: first.get(uuid, frozenset()) | second.get(uuid, frozenset())
        for uuid in (*first, *second)
    }
