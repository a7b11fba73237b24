"""The reads that a reshape needs: the consumers of the node's tree and the free space of shared
storage.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import os_resource_classes as orc
import os_traits

from agent.model.allocation import Allocation
from agent.model.inventory import capacity
from agent.model.names import ConsumerUuid
from agent.model.provider_tree import ProviderTree
from agent.placement.client import PlacementClient
from agent.placement.node_state import NodePlacementState
from agent.tree.reshape.allocation_editor import ReshapeContext, Sharing
from agent.tree.reshape.moving import sharing_providers


@dataclass(frozen=True, slots=True)
class ReshapeReads:
    """What was read from Placement before the allocations of a node are moved."""

    before: Mapping[ConsumerUuid, Allocation]
    """All consumers of the node's tree, each with its whole allocation."""
    reshape_context: ReshapeContext
    """The reshape context, completed by what providers that share with the node have left."""

    @classmethod
    def read(
        cls,
        client: PlacementClient,
        placement_state: NodePlacementState,
        reshape_context: ReshapeContext,
    ) -> "ReshapeReads":
        """Read the consumers, and the providers that share with the node, from Placement."""
        before = placement_state.holders(client)
        return cls(
            before,
            replace(
                reshape_context,
                sharing=_sharing(client, placement_state.named_view.tree, before.values()),
            ),
        )

    def edited(self) -> dict[str, dict[str, object]]:
        """Return a new copy of the allocations in the shape that drivers edit."""
        return {str(uuid): allocation.as_driver_dict() for uuid, allocation in self.before.items()}


def _sharing(
    client: PlacementClient, tree: ProviderTree, consumers: Iterable[Allocation]
) -> Sharing:
    """Return the free DISK_GB of each sharing provider of the tree, and which providers outside the
    tree that consumers have DISK_GB of are shared too.
    """
    places = sharing_providers(tree)
    used = dict(zip(places, client.exchange.each(client.usages, places), strict=True))
    free = {
        uuid: capacity(tree.provider(uuid).inventory[orc.DISK_GB]) - used[uuid].get(orc.DISK_GB, 0)
        for uuid in places
    }
    elsewhere = sorted(
        {
            uuid
            for allocation in consumers
            for uuid, held in allocation.resources.items()
            if orc.DISK_GB in held and not tree.exists(uuid)
        }
    )
    traits = dict(zip(elsewhere, client.exchange.each(client.traits, elsewhere), strict=True))
    return Sharing(
        free,
        frozenset(
            uuid
            for uuid, (_, found) in traits.items()
            if os_traits.MISC_SHARES_VIA_AGGREGATE in found
        ),
    )
