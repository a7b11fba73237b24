"""What a reshape knows about a node's guests and the storage they share."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.model.facts import HostFacts
from agent.model.guest import PlacedCell
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.tree.policy import Policy


@dataclass(frozen=True, slots=True)
class GuestPlaces:
    """Where the guests of a node are placed."""

    cells: Mapping[ConsumerUuid, tuple[PlacedCell, ...]] = field(default_factory=dict)
    """By consumer, an instance or the migration that holds for it: its host cells; empty if it
    floats.
    """
    moving: Mapping[ConsumerUuid, ConsumerUuid] = field(default_factory=dict)
    """By migration that holds for an instance: the instance."""

    @property
    def pinned(self) -> Mapping[ConsumerUuid, tuple[PlacedCell, ...]]:
        """The consumers with dedicated host CPUs, and their cells."""
        return {
            consumer: cells
            for consumer, cells in self.cells.items()
            if any(cell.pins for cell in cells)
        }


@dataclass(frozen=True, slots=True)
class Sharing:
    """Providers that share DISK_GB with the tree, now or before."""

    free: Mapping[ProviderUuid, int] = field(default_factory=dict)
    """How much DISK_GB each sharing provider has left."""
    former: frozenset[ProviderUuid] = frozenset()
    """Providers outside of the tree that consumers have DISK_GB of and that are sharing providers,
    but not of this tree any more.
    """


@dataclass(frozen=True, slots=True)
class ReshapeContext:
    """What a reshape needs to know beside the trees."""

    facts: HostFacts
    policy: Policy = field(default_factory=Policy)
    places: GuestPlaces = field(default_factory=GuestPlaces)
    sharing: Sharing = field(default_factory=Sharing)
    start: bool = False
    """The audit belongs to a start of the agent, or follows a takeover of the node's lease: then
    optional moves are made as well.
    """
