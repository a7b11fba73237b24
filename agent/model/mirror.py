"""Mirror of Placement: a view of each node's tree, and the capabilities of a server."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agent.model.allocation import Resources
from agent.model.names import ApiVersion, ConsumerUuid, ProviderUuid, is_custom
from agent.model.provider_tree import ProviderTree

# The microversion in which a provider can be given another parent.
REPARENT = "1.37"

Consumers = Mapping[ProviderUuid, Mapping[ConsumerUuid, Resources]]
"""The resources of each consumer, by provider."""


@dataclass(frozen=True, slots=True)
class PlacementView:
    """Placement's state of one node's tree, and of the roots that share with it, as last read or
    written.

    The contents of every provider belong to the generation beside them.
    """

    tree: ProviderTree = field(default_factory=lambda: ProviderTree().freeze())
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
    """The consumers without records, and when each was first noticed."""
    above: ProviderUuid | None = None
    """The provider under which another writer put the node's root; not a part of the tree. Not
    saved, because every list of the tree shows it.
    """


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

    def offers(self, version: str) -> bool:
        """Return whether the server supports microversion ``version``."""
        return ApiVersion.of(self.max_version) >= ApiVersion.of(version)
