"""What the agent knows of Placement: a view of each node's tree, and what one server offers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agent.model.allocation import Resources
from agent.model.names import ConsumerUuid, ProviderUuid, is_custom
from agent.model.provider_tree import ProviderTree

# The microversion in which a provider can be given another parent.
REPARENT = "1.37"

Consumers = Mapping[ProviderUuid, Mapping[ConsumerUuid, Resources]]
"""Who holds what, by provider."""


@dataclass(frozen=True, slots=True)
class PlacementView:
    """Placement's state of one node's tree, and of the roots that share with it, as last read or
    written.

    Every provider's contents belong to the generation beside them. ``tree`` is frozen. ``read_at``
    (seconds since the epoch) says when a provider was last read in full; ``sharing_read_at`` when
    the sharing roots were last asked for, and ``sharing_aggregates`` by which aggregates.

    ``consumers``: of the providers for which that was asked, who held what when it was; nobody
    knows that of the others. A removal moves no generation, so that some of it may be given back
    since: ``consumers_at`` says when it was asked last, if not when the provider was read; 0 of one
    that is known to be out of date. ``unknown_since``: consumers that no record knows, and when
    that was first noticed.
    """

    tree: ProviderTree = field(default_factory=lambda: ProviderTree().freeze())
    read_at: Mapping[ProviderUuid, float] = field(default_factory=dict)
    sharing_read_at: float | None = None
    sharing_aggregates: frozenset[str] = frozenset()
    consumers: Consumers = field(default_factory=dict)
    consumers_at: Mapping[ProviderUuid, float] = field(default_factory=dict)
    unknown_since: Mapping[ConsumerUuid, float] = field(default_factory=dict)
    # What somebody put the node's root below, which is no part of the tree. Not saved, because
    # every list of the tree shows it.
    above: ProviderUuid | None = None


@dataclass(frozen=True, slots=True)
class ServerCapabilities:
    """What one Placement server offers and has confirmed.

    ``unknown_traits``: standard traits it does not know, with the time (seconds since the epoch)
    until which not to ask again. ``can_reshape``: false once the reshaper has answered 403.
    """

    endpoint: str
    max_version: str
    traits: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()
    unknown_traits: Mapping[str, float] = field(default_factory=dict)
    can_reshape: bool = True

    def has_confirmed(self, traits: Iterable[str], classes: Iterable[str]) -> bool:
        """Whether nothing has to be asked or made sure of before these names are used."""
        return all(name in self.traits or name in self.unknown_traits for name in traits) and all(
            name in self.classes or not is_custom(name) for name in classes
        )

    def offers(self, version: str) -> bool:
        """Whether the server can answer at microversion ``version``."""
        return _number(self.max_version) >= _number(version)


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
