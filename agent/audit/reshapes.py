"""What an audit has to ask before the allocations of a node are moved: who holds what, and what
shared storage has left.
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
from agent.tree.reshape.context import ReshapeContext, Sharing
from agent.tree.reshape.shared_disk import sharing_providers


@dataclass(frozen=True, slots=True)
class ReshapeReads:
    """``before``: all consumers of the node's tree with all that they hold. ``reshape_context``:
    all that is known of them.
    """

    before: Mapping[ConsumerUuid, Allocation]
    reshape_context: ReshapeContext

    @classmethod
    def read(
        cls,
        client: PlacementClient,
        placement_state: NodePlacementState,
        reshape_context: ReshapeContext,
    ) -> "ReshapeReads":
        """Ask Placement, also about those that share with the node."""
        before = placement_state.holders(client)
        return cls(
            before,
            replace(
                reshape_context,
                sharing=_sharing(client, placement_state.view.tree, before.values()),
            ),
        )

    def edited(self) -> dict[str, dict[str, object]]:
        """The allocations for a driver, or the core, to edit."""
        return {str(uuid): one.as_driver_dict() for uuid, one in self.before.items()}


def _sharing(
    client: PlacementClient, tree: ProviderTree, consumers: Iterable[Allocation]
) -> Sharing:
    """How much DISK_GB those have left who share it, and which of the others that consumers have it
    of are shared too.
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
            for one in consumers
            for uuid, held in one.resources.items()
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
