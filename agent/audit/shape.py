"""The pure part of an audit: from what was observed to the tree that Placement should hold."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from agent.audit.devices import (
    DriverTree,
    ObservedDevices,
    PlacedDeviceTree,
    device_hints,
    place_devices,
)
from agent.model.facts import HostFacts
from agent.model.mirror import Journal, PlacementView, ServerCapabilities
from agent.model.names import ProviderUuid
from agent.pci.settings import PciSettings
from agent.placement.merge import Merge, Target, Usages
from agent.placement.merge_inputs import MergeInputs
from agent.placement.reshaping import AllocationMove, find_stranded
from agent.provider_config.applying import Applied, ProviderConfig
from agent.tracker.node_state import NodeView
from agent.tree.desired_tree import DriverReport, put_operators_files, with_novas_children
from agent.tree.host_tree import layout_hint, memory_hint
from agent.tree.policy import Policy
from agent.tree.reported_cards import DeviceUses


@dataclass(frozen=True, slots=True)
class DesiredNode:
    """The desired tree of a node with its devices and the operator's files, before the merge."""

    inputs: MergeInputs
    """The inputs of the merge, without the additions of the files."""
    devices: PlacedDeviceTree
    files: Applied
    """The desired tree with the additions of the files."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What one attempt of an audit has read of a node, and the first shape that follows from it."""

    report: DriverReport
    records: NodeView
    view: PlacementView
    journal: Journal
    usages: Usages
    """The usages of what is held until it is free."""
    uses: DeviceUses
    """Which consumer has which device."""
    driver_tree: DriverTree
    move: AllocationMove | None
    """The move of allocations that the tree of the driver needs."""
    devices: ObservedDevices
    desired: DesiredNode
    """The first shape. It decides which names and which holders are read."""
    capabilities: ServerCapabilities
    """With the names that the first shape adds."""
    hint: str | None
    """What the operator's options could do better for the node; None if there is nothing."""
    idle: bool = False
    """Everything that shape and plan follow from is as in the last idle attempt."""


def desired_node(
    view: PlacementView,
    journal: Journal,
    report: DriverReport,
    driver_tree: DriverTree,
    devices: ObservedDevices,
    policy: Policy,
    provider_config: ProviderConfig,
    *,
    adopt: bool,
    gives_back: bool,
) -> DesiredNode:
    """Return the tree of the driver with the node's devices and the operator's files. ``adopt``:
    the tree is taken over. ``gives_back``: it is left to nova-compute.
    """
    placed, root = place_devices(devices, driver_tree), devices.place.root
    inputs = placed.taken_over(
        MergeInputs.of(view, journal, driver_tree.base, driver_tree.desired, root, take_over=adopt)
    )
    # Whoever adopts was told what goes with it.
    inputs = replace(inputs, keeps_foreign=gives_back or not adopt, gives_back=gives_back)
    inputs = inputs if report.shape_all else with_novas_children(inputs)
    files = put_operators_files(
        provider_config, inputs, policy.owner_trait, kept=bool(report.facts.incomplete)
    )
    return DesiredNode(inputs, placed, files)


def shape(observed: Observed) -> Target:
    """Return what Placement should hold: the desired tree merged with what others own there."""
    desired, facts = observed.desired, observed.report.facts
    return Merge(
        replace(desired.inputs, desired=desired.files.tree),
        observed.capabilities,
        observed.usages,
        desired.files.configured,
        exclusive=facts.exclusive,
        incomplete=bool(facts.incomplete),
    ).target()


def newly_stranded(
    observed: Observed, target: Target, move: AllocationMove, root: ProviderUuid, *, by_driver: bool
) -> Mapping[ProviderUuid, frozenset[str]]:
    """Return the inventories that the node no longer has while consumers of ``move`` go on using
    them, without those that are held already. ``by_driver``: the driver shapes the tree.
    """
    if not target.journal.adopted or not observed.view.tree.exists(root):
        return {}
    present, held = observed.view.tree.subtree(root), observed.journal.held
    left = find_stranded(present, target.tree, move, by_driver=by_driver)
    return {
        uuid: classes
        for uuid, classes in left.items()
        if not classes <= held.get(uuid, frozenset())
    }


def hints(
    view: PlacementView,
    report: DriverReport,
    root: ProviderUuid,
    policy: Policy,
    settings: PciSettings,
) -> str | None:
    """Return what the operator's options could do better for the node; None if there is nothing."""
    facts: HostFacts = report.facts
    layout = (
        []
        if report.shape_all
        else [layout_hint(facts, policy, view.tree, root), memory_hint(facts, policy)]
    )
    return "; ".join(filter(None, [*layout, *device_hints(facts, policy, settings)])) or None
