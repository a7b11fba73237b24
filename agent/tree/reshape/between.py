"""Moves allocations of classes that go from the root to its children or back: cells, parents of
mediated devices, encryption techniques.
"""

import logging
from collections.abc import Mapping

import os_resource_classes as orc

from agent.errors import ReshapeFailed
from agent.model.names import ConsumerUuid, number_of, printable
from agent.model.provider_tree import ProviderTree
from agent.tree.children import CHILDREN
from agent.tree.children import CLASS as CONTEXT
from agent.tree.reshape.allocation_editor import AllocationEditor, check_room, failed
from agent.tree.reshape.context import ReshapeContext
from agent.tree.reshape.places import Shift, counted_by_cells, shares

LOG = logging.getLogger(__name__)


def cross(
    shift: Shift,
    tree: ProviderTree,
    root: str,
    reshape_context: ReshapeContext,
    editor: AllocationEditor,
) -> None:
    """Move the allocations of the class from where it is not counted any more.

    :raises ReshapeFailed: it is unknown where a share goes, or there is no room for it.
    """
    name, resource_class = tree.name_of(root), shift.resource_class
    homeless: list[str] = []
    for consumer, provider, amount in editor.holders(resource_class, shift.left):
        if root in shift.after:
            found: Mapping[str, int] | None = {name: amount}
        elif counted_by_cells(resource_class):
            found = shares(
                resource_class, amount, reshape_context.places.cells.get(consumer, ()), name
            )
        else:
            found = _devices(resource_class, consumer, amount, name, reshape_context)
        if found is None:
            homeless.append(consumer)
            continue
        editor.take(consumer, provider, resource_class, amount)
        for place, share in found.items():
            check_room(tree, place, resource_class, consumer, share)
            editor.give(consumer, str(tree.provider(place).uuid), resource_class, share)
    if homeless:
        what = (
            f"{resource_class} of {printable(name)} would move from the root to its cells, but "
            "nobody knows to which of them what is used"
        )
        remedy = (
            "set [compute] tree_layout and numa_mode back, or move them away first; guests that "
            "run here are made known by agent guests import"
        )
        raise failed(what, homeless, remedy)


def _devices(
    resource_class: str,
    consumer: ConsumerUuid,
    amount: int,
    root: str,
    reshape_context: ReshapeContext,
) -> Mapping[str, int]:
    """Return by provider name where the first ``amount`` mediated devices of a consumer are, in the
    order of their parents.

    :raises ReshapeFailed: fewer devices of the consumer are known.
    """
    if resource_class == CONTEXT:
        # Only SEV was on the root: the other techniques had children from the start.
        return {CHILDREN["sev"].name(root): amount}
    owner = reshape_context.places.moving.get(consumer, consumer)
    places = [
        parent.provider_name(root)
        for parent in sorted(reshape_context.facts.mdev or (), key=lambda one: one.name)
        for device in parent.mdevs
        if device.owner == owner
        and (kind := reshape_context.policy.mdev.type_of(parent.name)) is not None
        and kind.resource_class == orc.VGPU
        and kind.name == device.type
    ]
    if len(places) < amount:
        found = (
            f"only {number_of(len(places), 'device')} of it found"
            if places
            else "no guest with devices is known by that name"
        )
        what = (
            f"VGPU of {printable(root)} would move from the root to its parents, but consumer "
            f"{consumer} has {amount} of it and {found}"
        )
        raise ReshapeFailed(
            what, "end its move or delete its allocation, and reload the agent", consumer=consumer
        )
    if len(places) > amount:
        LOG.warning(
            (
                "consumer %s has %d devices but only %d VGPU in Placement: those of the first "
                "parents count"
            ),
            consumer,
            len(places),
            amount,
        )
    found_shares: dict[str, int] = {}
    for place in places[:amount]:
        found_shares[place] = found_shares.get(place, 0) + 1
    return found_shares
