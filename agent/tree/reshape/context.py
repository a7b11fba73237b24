"""What is known of a node's guests when their allocations are moved: where they sit, and who shares
with the node.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.model.facts import HostFacts
from agent.model.guest import PlacedCell
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.tree.policy import Policy


@dataclass(frozen=True, slots=True)
class GuestPlaces:
    """``cells``: of each consumer, an instance or the migration that holds for it, on which host
    cells it sits; none if it floats.

    ``moving``: for which instance each of those migrations holds.
    """

    cells: Mapping[ConsumerUuid, tuple[PlacedCell, ...]] = field(default_factory=dict)
    moving: Mapping[ConsumerUuid, ConsumerUuid] = field(default_factory=dict)

    @property
    def pinned(self) -> Mapping[ConsumerUuid, tuple[PlacedCell, ...]]:
        """Those with host CPUs of their own."""
        return {
            consumer: cells
            for consumer, cells in self.cells.items()
            if any(one.pins for one in cells)
        }


@dataclass(frozen=True, slots=True)
class Sharing:
    """Providers outside of the tree that share DISK_GB. ``free``: how much each has left;
    ``former``: of those, which share it no more.
    """

    free: Mapping[ProviderUuid, int] = field(default_factory=dict)
    former: frozenset[ProviderUuid] = frozenset()


@dataclass(frozen=True, slots=True)
class ReshapeContext:
    """All of it. ``start``: whether this is a start of the agent, when what can wait is moved as
    well.
    """

    facts: HostFacts
    policy: Policy = field(default_factory=Policy)
    places: GuestPlaces = field(default_factory=GuestPlaces)
    sharing: Sharing = field(default_factory=Sharing)
    start: bool = False
