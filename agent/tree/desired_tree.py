"""The desired tree of one node: the part that follows from the facts, the driver's own part, and
the agent's traits on the root.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import os_resource_classes as orc
import os_traits

from agent.driver.interface import Allocations
from agent.model.facts import HostFacts
from agent.model.journal import Journal, Ownership
from agent.model.names import ProviderUuid
from agent.model.provider import Provider
from agent.model.provider_tree import ProviderTree
from agent.placement.merge_inputs import MergeInputs
from agent.tree.children import (
    CHILDREN,
    CLASS,
    put_encryption,
    put_mdevs,
    remove_sev_trait_from_root,
)
from agent.tree.host_tree import shape_host
from agent.tree.node_trees import NodeTrees
from agent.tree.policy import Policy
from agent.tree.reshape.context import ReshapeContext
from agent.tree.reshape.moving import move_allocations
from agent.tree.root_traits import put_root_traits
from agent.tree.units import put_units

_PCI_PARENT = re.compile(r"_pci_[0-9a-f]{4,8}_[0-9a-f]{2}_[01][0-9a-f]_[0-7]")


def with_novas_children(inputs: MergeInputs) -> MergeInputs:
    """Return ``inputs`` with the children that nova created added to the journal, if the tree is
    being taken over.
    """
    present, journal = inputs.present, inputs.journal
    if not inputs.take_over or not present.exists(inputs.root):
        return inputs
    root = present.name_of(inputs.root)
    taken = {
        child.uuid: ownership
        for child in present.providers()
        if not journal.owns(child.uuid)
        and child.parent_uuid == inputs.root
        and (ownership := _novas_ownership(child, root)) is not None
    }
    if not taken:
        return inputs
    return replace(inputs, journal=replace(journal, providers={**journal.providers, **taken}))


def _novas_ownership(provider: Provider, root: str) -> Ownership | None:
    """Return what nova wrote on a child that it created; None if nova did not create it."""
    if (
        orc.VGPU in provider.inventory
        and provider.name.startswith(root)
        and _PCI_PARENT.fullmatch(provider.name.removeprefix(root))
    ):
        return Ownership(frozenset({orc.VGPU}))
    for child in CHILDREN.values():
        if CLASS in provider.inventory and provider.name == child.name(root):
            return Ownership(frozenset({CLASS}), frozenset(provider.traits & {child.trait}))
    return None


_SEV = CHILDREN["sev"]


def count_on_root(tree: ProviderTree, root: ProviderUuid, classes: frozenset[str]) -> None:
    """Move the inventories of ``classes`` from the children to the root. A child with nothing left
    is removed.
    """
    if orc.VGPU in classes:
        _fold(
            tree,
            root,
            orc.VGPU,
            [uuid for uuid in tree.get_provider_uuids_in_tree(root) if uuid != root],
            together=True,
        )
    if CLASS in classes and tree.exists(sev := _SEV.name(tree.name_of(root))):
        # A guest has one context, and contexts of the other techniques never were on the root.
        _fold(tree, root, CLASS, [tree.provider(sev).uuid], together=False)
        tree.add_traits(root, _SEV.trait)


def _fold(
    tree: ProviderTree,
    root: ProviderUuid,
    name: str,
    children: list[ProviderUuid],
    *,
    together: bool,
) -> None:
    """Add up the children's inventories of class ``name`` on the root.

    ``together``: one consumer may have all of it; else at most what one child offered.
    """
    having = [uuid for uuid in reversed(children) if name in tree.provider(uuid).inventory]
    if not having:
        return
    inventory = tree.provider(root).inventory
    records = [
        tree.provider(uuid).inventory[name]
        for uuid in (*having, *((root,) if name in inventory else ()))
    ]
    total = sum(int(record["total"]) for record in records)
    most = total if together else max(int(record["max_unit"]) for record in records)
    tree.update_inventory(
        root, {**inventory, name: {**records[0], "total": total, "max_unit": most}}
    )
    for uuid in having:
        left = {
            other: record
            for other, record in tree.provider(uuid).inventory.items()
            if other != name
        }
        if left or tree.children(uuid):
            tree.update_inventory(uuid, left)
        else:
            tree.remove(uuid)


Shape = Callable[[ProviderTree, Allocations | None], None]


@dataclass(frozen=True, slots=True)
class DriverReport:
    """What the driver reports about a node: its facts, its capabilities, and how it shapes its own
    part of the tree.
    """

    facts: HostFacts
    capabilities: Mapping[str, bool]
    """By trait: whether the node has the capability."""
    shape: Shape | None = None
    """Edits a tree in place; with allocations, it may move them as well."""
    shape_all: bool = False
    """The driver shapes the whole tree, in nova's style; nothing is added from the facts."""


def desired_tree(
    base: ProviderTree,
    present: ProviderTree,
    root: ProviderUuid,
    driver_report: DriverReport,
    policy: Policy,
    journal: Journal,
    agent: str,
    reshape_context: ReshapeContext | None = None,
    allocations: Allocations | None = None,
) -> ProviderTree:
    """Return a copy of ``base`` with everything that the node should have. ``allocations`` are
    edited in place.

    ``base``: what the driver starts from, the parts of others or the whole tree. ``present``: what
    Placement has. ``agent``: the name that marks the roots of this agent. ``reshape_context``:
    where guests are placed; by default only the facts and the policy are known.

    :raises ReshapeNeeded: allocated inventory has to move and ``allocations`` is None.
    :raises ReshapeFailed: the allocations cannot be moved.
    :raises ConfigError: the operator's policy does not fit the node.
    """
    tree = base.copy()
    trees, facts = NodeTrees(tree, present, root), driver_report.facts
    if not driver_report.shape_all:
        shape_host(trees, facts, policy)
    if driver_report.shape is not None:
        driver_report.shape(tree, allocations)
        _complete_ratios(tree, policy.configured_ratios)
    if not driver_report.shape_all:
        put_mdevs(trees, facts, policy.mdev)
        put_encryption(trees, facts, policy.encryption)
        if journal.adopted:
            remove_sev_trait_from_root(trees)
        count_on_root(tree, root, policy.on_root)
        # After the driver's part, because the driver may create the providers that count the units.
        put_units(trees, facts)
        # Nothing is deleted from a tree that is not adopted, so nothing moves in it either.
        if journal.adopted:
            move_allocations(trees, reshape_context or ReshapeContext(facts, policy), allocations)
    put_root_traits(trees, journal, policy, agent, driver_report.capabilities, facts)
    return tree


def _complete_ratios(tree: ProviderTree, ratios: Mapping[str, float]) -> None:
    """Add the operator's ratios to the driver's records that have none. Ratios that the operator
    left open are completed from Placement by the merge.
    """
    for provider in list(tree.providers()):
        completed = {
            name: {**record, "allocation_ratio": ratios[name]}
            for name, record in provider.inventory.items()
            if name in ratios and "allocation_ratio" not in record
        }
        if completed:
            tree.update_inventory(provider.uuid, {**provider.inventory, **completed})


TRAIT = os_traits.COMPUTE_REMOTE_MANAGED_PORTS


def with_remote_managed_ports(
    driver_report: DriverReport, offered: bool | None, present: ProviderTree, root: ProviderUuid
) -> DriverReport:
    """Return ``driver_report`` with the capability of remote-managed ports only if such devices are
    ``offered``, free or not; if that is unknown (None), as ``present`` has it.
    """
    known = {**(driver_report.facts.traits or {}), **driver_report.capabilities}
    if not known.get(TRAIT):
        return driver_report
    last = present.exists(root) and present.has_traits(root, [TRAIT])
    return replace(
        driver_report,
        capabilities={**driver_report.capabilities, TRAIT: last if offered is None else offered},
    )
