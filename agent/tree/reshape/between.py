"""Moves allocations of classes that go from the root to its children or back: cells, parents of
mediated devices, encryption techniques.
"""

import logging
from collections import Counter
from collections.abc import Mapping

import os_resource_classes as orc

from agent.errors import ReshapeFailed
from agent.model.names import ConsumerUuid, number_of, printable
from agent.tree.children import CHILDREN
from agent.tree.children import CLASS as CONTEXT
from agent.tree.node_trees import NodeTrees
from agent.tree.reshape.allocation_editor import AllocationEditor, check_room, reshape_failed
from agent.tree.reshape.class_moves import ClassMove, counted_by_cells, shares_by_cell
from agent.tree.reshape.context import ReshapeContext

LOG = logging.getLogger(__name__)


def move_between_root_and_children(
    move: ClassMove, trees: NodeTrees, reshape_context: ReshapeContext, editor: AllocationEditor
) -> None:
    """Move the allocations of the class from where it is not counted any more.

    :raises ReshapeFailed: it is unknown where a share goes, or there is no room for it.
    """
    desired, node, resource_class = trees.desired, trees.name, move.resource_class
    consumers_without_cells: list[str] = []
    for consumer, provider, amount in editor.holders(resource_class, move.left):
        if trees.root in move.after:
            shares: Mapping[str, int] | None = {node: amount}
        elif counted_by_cells(resource_class):
            cells = reshape_context.places.cells.get(consumer, ())
            shares = shares_by_cell(resource_class, amount, cells, node)
        else:
            shares = _shares_by_device(resource_class, consumer, amount, node, reshape_context)
        if shares is None:
            consumers_without_cells.append(consumer)
            continue
        editor.take(consumer, provider, resource_class, amount)
        for target, share in shares.items():
            check_room(desired, target, resource_class, consumer, share)
            editor.give(consumer, desired.provider(target).uuid, resource_class, share)
    if consumers_without_cells:
        what = (
            f"{resource_class} of {printable(node)} would move from the root to its cells, but "
            "it is unknown which cells have what is used"
        )
        remedy = (
            "set [compute] tree_layout and numa_mode back, or move these consumers away first; "
            "agent guests import records guests that run here"
        )
        raise reshape_failed(what, consumers_without_cells, remedy)


def _shares_by_device(
    resource_class: str,
    consumer: ConsumerUuid,
    amount: int,
    root: str,
    reshape_context: ReshapeContext,
) -> Mapping[str, int]:
    """Return, by provider name, how many of the first ``amount`` mediated devices of a consumer are
    there, in the order of their parents.

    :raises ReshapeFailed: fewer devices of the consumer are known.
    """
    if resource_class == CONTEXT:
        # Only SEV was on the root: the other techniques had children from the start.
        return {CHILDREN["sev"].name(root): amount}
    owner = reshape_context.places.moving.get(consumer, consumer)
    providers = [
        parent.provider_name(root)
        for parent in sorted(reshape_context.facts.mdev or (), key=lambda parent: parent.name)
        for device in parent.mdevs
        if device.owner == owner
        and (kind := reshape_context.policy.mdev.type_of(parent.name)) is not None
        and kind.resource_class == orc.VGPU
        and kind.name == device.type
    ]
    if len(providers) < amount:
        found = (
            f"only {number_of(len(providers), 'device')} of it found"
            if providers
            else "no guest with devices is known by that name"
        )
        what = (
            f"VGPU of {printable(root)} would move from the root to its parents, but consumer "
            f"{consumer} has {amount} of it and {found}"
        )
        raise ReshapeFailed(
            what, "end its move or delete its allocation, and reload the agent", consumer=consumer
        )
    if len(providers) > amount:
        LOG.warning(
            (
                "consumer %s has %d devices but only %d VGPU in Placement: those of the first "
                "parents count"
            ),
            consumer,
            len(providers),
            amount,
        )
    return Counter(providers[:amount])
