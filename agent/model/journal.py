"""The ownership journal: which providers, classes, traits and aggregates of a node the agent itself
wrote.

What is not in the journal is somebody else's and is kept for ever; what is in it can be taken back.
What was taken back leaves a tombstone, so that it is known again when a restored database brings it
back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from agent.model.names import ProviderUuid


@dataclass(frozen=True, slots=True)
class Configured:
    """Of what the agent wrote on a provider, the classes and traits that only the operator's files
    asked for.
    """

    classes: frozenset[str] = frozenset()
    traits: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.classes or self.traits)


@dataclass(frozen=True, slots=True)
class Ownership:
    """What the agent wrote on one provider of its own.

    ``name``: of a child whose uuid does not follow from it, so that another provider of that name
    is known to have taken its place.
    """

    classes: frozenset[str] = frozenset()
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()
    configured: Configured = Configured()
    name: str = ""


Kind = Literal["provider", "class", "trait", "aggregate"]
KINDS: frozenset[Kind] = frozenset(get_args(Kind))


class Tombstone(NamedTuple):
    """Something of a provider that the agent wrote and took back. ``name``: empty for the provider
    itself.
    """

    provider: ProviderUuid
    kind: Kind
    name: str = ""


@dataclass(frozen=True, slots=True)
class Journal:
    """What is the agent's in the tree of one node.

    ``adopted``: the agent created the root, or was told to take the tree over; only then may it
    delete and reshape. ``held``: providers and their classes that the agent has reserved as a
    whole. Mostly the node no longer has them and somebody still uses them: they stay until they are
    free. ``version``: of what the store keeps, 0 before that; it says nothing of what the journal
    contains. ``tombstones``: what was taken back, and when, in seconds since the epoch.
    """

    providers: Mapping[ProviderUuid, Ownership] = field(default_factory=dict)
    adopted: bool = False
    held: Mapping[ProviderUuid, frozenset[str]] = field(default_factory=dict)
    version: int = field(default=0, compare=False)
    tombstones: Mapping[Tombstone, float] = field(default_factory=dict)

    def owns(self, uuid: str) -> bool:
        """Whether the provider is the agent's."""
        return uuid in self.providers

    def of(self, uuid: str) -> Ownership:
        """What the agent wrote on the provider; nothing, for a foreign one."""
        return self.providers.get(ProviderUuid(uuid), Ownership())
