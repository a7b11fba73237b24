"""What the store keeps of Placement: the mirror (a view of each node's tree, and the capabilities
of a server) and the ownership journal (the providers, classes, traits and aggregates of a node that
the agent itself wrote).

What is not in the journal belongs to other writers and is kept for ever; what is in the journal can
be taken back.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from agent.model.inventory import Resources
from agent.model.names import ApiVersion, ConsumerUuid, ProviderUuid, is_custom
from agent.model.provider_tree import PresentTree, ProviderTree

# The microversion in which a provider can be given another parent.
REPARENT = "1.37"

# In seconds: how long a standard trait that the server does not know is left out.
ASK_FOR_TRAIT_AGAIN = 3600.0

Consumers = Mapping[ProviderUuid, Mapping[ConsumerUuid, Resources]]
"""The resources of each consumer, by provider."""


@dataclass(frozen=True, slots=True)
class PlacementView:
    """Placement's state of one node's tree, and of the roots that share with it, as last read or
    written.

    The contents of every provider belong to the generation beside them.
    """

    tree: PresentTree = field(default_factory=lambda: PresentTree(ProviderTree().freeze()))
    """Frozen."""
    read_at: Mapping[ProviderUuid, float] = field(default_factory=dict)
    """When each provider was last read in full, in seconds since the epoch."""
    sharing_read_at: float | None = None
    """When the sharing roots were last read, in seconds since the epoch."""
    sharing_aggregates: frozenset[str] = frozenset()
    """The aggregates for which the sharing roots were read."""
    consumers: Consumers = field(default_factory=dict)
    """The consumers of the providers for which they were read, as they were then; unknown for other
    providers. The removal of an allocation raises no provider generation, so that some of them may
    be out of date.
    """
    consumers_at: Mapping[ProviderUuid, float] = field(default_factory=dict)
    """When a provider's consumers were last read, if not together with the provider; 0 if they are
    known to be out of date.
    """
    unknown_since: Mapping[ConsumerUuid, float] = field(default_factory=dict)
    """The consumers without records, and when each was first noticed; also those with a share on
    another host that the records do not explain, with the time of the last pass.
    """
    above: ProviderUuid | None = None
    """The provider under which another writer put the node's root; not a part of the tree. Not
    saved, because every list of the tree shows it.
    """

    def subtree(self, root: ProviderUuid) -> PresentTree:
        """Return a copy of the node's tree alone; empty if Placement does not have it."""
        return PresentTree(self.tree.subtree(root) if self.tree.exists(root) else ProviderTree())


@dataclass(frozen=True, slots=True)
class ServerCapabilities:
    """What one Placement server offers and has confirmed."""

    endpoint: str
    max_version: str
    traits: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()
    unknown_traits: Mapping[str, float] = field(default_factory=dict)
    """Standard traits that the server does not know, with the time (seconds since the epoch) until
    which they are not looked up again.
    """
    can_reshape: bool = True
    """False once the reshaper has answered 403."""

    def has_confirmed(self, traits: Iterable[str], classes: Iterable[str]) -> bool:
        """Return whether these names can be used without a further look-up or creation."""
        return all(name in self.traits or name in self.unknown_traits for name in traits) and all(
            name in self.classes or not is_custom(name) for name in classes
        )

    def left_out_traits(self, now: float) -> dict[str, float]:
        """Return the unknown traits that are not to be looked up again yet, and until when."""
        return {
            name: until
            for name, until in self.unknown_traits.items()
            # Later only if the clock was set back.
            if now < until <= now + ASK_FOR_TRAIT_AGAIN
        }

    def offers(self, version: str) -> bool:
        """Return whether the server supports microversion ``version``."""
        return ApiVersion.of(self.max_version) >= ApiVersion.of(version)


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
    role: str = ""
    """What a child is to its node, see :func:`agent.model.names.child_role`: by it the agent knows
    the child, whatever it is called. Empty for the root, and until the role is known.
    """

    def union(self, later: "Ownership") -> "Ownership":
        """Return what is in either; the role is that of ``later``, if it has one."""
        return Ownership(
            self.classes | later.classes,
            self.traits | later.traits,
            self.aggregates | later.aggregates,
            self.configured.union(later.configured),
            later.role or self.role,
        )


Held = Mapping[ProviderUuid, frozenset[str]]
"""Classes by provider."""


Name = tuple[Literal["class", "trait"], str]


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
    names: frozenset[Name] = field(default=frozenset(), compare=False)
    """The custom names that the agent wrote in the tree at any time, of which Placement's lists are
    cleared when the node is given back; kept with the stored journal, as its version is.
    """

    def owns(self, uuid: str) -> bool:
        """Return whether the provider is the agent's."""
        return uuid in self.providers

    def of(self, uuid: str) -> Ownership:
        """Return what the agent wrote on the provider; an empty value for a foreign one."""
        return self.providers.get(ProviderUuid(uuid), Ownership())

    def all_names(self) -> frozenset[Name]:
        """Return ``names`` with those of the present providers."""
        names = set(self.names)
        for own in self.providers.values():
            names.update(("class", name) for name in own.classes if is_custom(name))
            names.update(("trait", name) for name in own.traits if is_custom(name))
        return frozenset(names)

    def without(self, providers: Container[ProviderUuid]) -> "Journal":
        """Return the journal without ``providers``."""
        kept = {uuid: own for uuid, own in self.providers.items() if uuid not in providers}
        return replace(self, providers=kept)

    def union(self, after: "Journal") -> "Journal":
        """Return the journal of what is the agent's if any part of the change from this journal to
        ``after`` was done. It has neither version nor names.
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
