"""The desired tree of a node and the way there: a pure function of what an audit has read, which
returns what else it needs to read.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace

from agent.audit.allocations import without_novas_rules
from agent.audit.observation import (
    DriverTree,
    Holders,
    Names,
    Need,
    NewerServer,
    Observation,
    ReshapeReads,
    Shaped,
)
from agent.driver.interface import Allocations
from agent.errors import (
    DRIVER_FAULT,
    AdoptionNeeded,
    ConfigErrors,
    ReshapeFailed,
    ReshapeNeeded,
)
from agent.model.devices import MdevParent, PciDevice
from agent.model.mirror import REPARENT
from agent.model.names import ProviderUuid, name_first, printable
from agent.model.provider_tree import BaseTree, DesiredTree, PresentTree
from agent.pci.device_spec import DeviceSpec
from agent.pci.settings import PresentDevices, match_devices
from agent.placement.merge import ADOPT, Merge, Target
from agent.placement.ownership import MergeInputs, foreign_share
from agent.placement.plan import Plan, added_names, make_plan
from agent.placement.reshaping import AllocationMove, allocation_move, find_stranded
from agent.tree.desired_tree import (
    complete_ratios,
    complete_tree,
    put_operators_files,
    put_root_traits,
    with_novas_children,
)
from agent.tree.device_providers import (
    DeviceProviders,
    Reported,
    bounded,
    device_providers_of,
    shrinking,
    still_reported,
)
from agent.tree.device_tree import ProviderPlace, misplaced, put_devices, with_cards
from agent.tree.host_tree import (
    choose_layout,
    describe_layout,
    layout_hint,
    memory_hint,
    shape_host,
)
from agent.tree.node_trees import NodeTrees
from agent.tree.policy import MdevPolicy
from agent.tree.reported_cards import device_provider_name
from agent.tree.reshape.allocation_editor import ReshapeContext, Sharing

MANY = 3
"""How many devices a hint names."""


def shape(seen: Observation) -> Shaped | Need:
    """Return the tree that Placement should hold: what the driver, the devices and the operator's
    files come to, merged with what others own there; and the way there.

    :raises AdoptionNeeded: inventories would move in a tree that is not adopted.
    :raises ReshapeNeeded: allocations would move to another layout, which they do at a start only.
    :raises ConfigErrors: at the start, devices cannot be reported as the options say.
    """
    made = _driver_tree(seen)
    if isinstance(made, Need):
        return made
    base, desired, move = made
    place = _provider_place(seen, desired)
    devices = _devices(seen, base, desired, place)
    if isinstance(devices, Need):
        return devices
    if seen.first:
        # Later these errors are reported and the providers stay as they are.
        ConfigErrors.raise_if_any(devices.errors)
    tree = desired.copy()
    placed = put_devices(tree, base, devices, place)
    inputs = _merge_inputs(seen, base, tree, devices, place)
    files = put_operators_files(
        seen.context.provider_config,
        inputs,
        seen.policy.owner_trait,
        kept=bool(seen.facts.incomplete),
    )
    if (names := _unknown_names(seen, files.tree)) is not None:
        return names
    target = Merge(
        replace(inputs, desired=files.tree),
        seen.capabilities,
        seen.usages,
        files.configured,
        exclusive=seen.facts.exclusive,
        incomplete=bool(seen.facts.incomplete),
    ).target()
    plan = plan_of(seen, target, None)
    if plan.limited and seen.lacks(NewerServer()):
        return NewerServer()
    return Shaped(
        move=move,
        devices=devices,
        device_drift=(*devices.drift, *placed.drift),
        anew=bool(placed.anew),
        target=target,
        plan=plan,
        problems=tuple(files.problems),
        sighted=files.found,
        hint=_hint(seen),
        layout=None
        if seen.driver_shapes == "all"
        else describe_layout(seen.facts.numa, seen.policy, seen.named.tree, seen.root),
    )


def plan_of(seen: Observation, target: Target, move: AllocationMove | None) -> Plan:
    """Return the operations that lead from the view to ``target``.

    :raises ReshapeFailed: the allocations of ``move`` cannot be moved.
    """
    target = target.with_names_of_others(seen.view.tree)
    plan = make_plan(seen.view, target, seen.capabilities, seen.root, move)
    return without_novas_rules(plan, seen.root) if seen.context.observes else plan


def newly_stranded(
    seen: Observation, shaped: Shaped, move: AllocationMove
) -> Mapping[ProviderUuid, frozenset[str]]:
    """Return the inventories that the node no longer has while consumers of ``move`` go on using
    them, without those that are held already.
    """
    if not shaped.target.journal.adopted or not seen.named.tree.exists(seen.root):
        return {}
    present, held = seen.named.subtree(seen.root), seen.journal.held
    left = find_stranded(
        present, shaped.target.tree, move, by_driver=seen.driver_shapes != "nothing"
    )
    return {
        uuid: classes
        for uuid, classes in left.items()
        if not classes <= held.get(uuid, frozenset())
    }


# --- the tree of the driver -----------------------------------------------------------------------


def _driver_tree(
    seen: Observation,
) -> tuple[BaseTree, DesiredTree, AllocationMove | None] | Need:
    """Return the tree that the driver starts from, the one that facts, policy and driver make of
    it, and the move of allocations that it needs; no move if no allocation had to move after all.
    """
    try:
        built = _build(seen, Sharing(), None)
        return built if isinstance(built, Need) else (*built, None)
    except ReshapeNeeded as needed:
        if seen.named.tree.exists(seen.root) and not seen.journal.adopted:
            what = (
                f"{printable(seen.node.name)}: inventory and its allocations would move, but "
                "the tree is not adopted"
            )
            raise AdoptionNeeded(what, ADOPT) from needed
        if not seen.reshapes:
            raise
        return _reshaped(seen, needed)


def _reshaped(
    seen: Observation, needed: ReshapeNeeded
) -> tuple[BaseTree, DesiredTree, AllocationMove | None] | Need:
    if (reading := seen.answers.get(ReshapeReads())) is None:
        return ReshapeReads(needed.message)
    before, sharing = reading
    edited = {str(uuid): held.as_driver_dict() for uuid, held in before.items()}
    try:
        built = _build(seen, sharing, edited)
    except ReshapeNeeded as error:
        what = (
            f"driver error: {seen.node.driver} asks for a reshape of "
            f"{printable(seen.node.name)} although it was given the allocations"
        )
        raise ReshapeFailed(what, DRIVER_FAULT) from error
    if isinstance(built, Need):
        return built
    move = allocation_move(before, edited)
    needless = needed.data.get("only_if_held") and not move.changed
    return *built, None if needless else move


def _build(
    seen: Observation, sharing: Sharing, allocations: Allocations | None
) -> tuple[BaseTree, DesiredTree] | Need:
    """Return the tree that the driver starts from, and the one that facts, policy and driver make
    of it. ``allocations`` are edited in place.
    """
    facts, policy, present = seen.facts, seen.policy, PresentTree(seen.named.tree)
    need = DriverTree(moves=allocations is not None)
    answer = seen.answers.get(need)
    if isinstance(answer, ReshapeNeeded):
        raise answer
    if answer is not None:
        base, shaped, moved = answer
        desired = DesiredTree(shaped.copy())
        if allocations is not None:
            allocations.clear()
            allocations.update(deepcopy(moved))
    else:
        if seen.driver_shapes == "all" and seen.named.tree.exists(seen.root):
            base = BaseTree(seen.named.tree.scoped(seen.root))
        else:
            base = foreign_share(seen.named, seen.journal, seen.root, seen.node.name)
        desired = DesiredTree(base.copy())
        if seen.driver_shapes != "all":
            shape_host(NodeTrees(desired, present, seen.root), facts, policy)
        if seen.driver_shapes != "nothing":
            return replace(need, base=base, tree=desired, allocations=allocations)
    trees = NodeTrees(desired, present, seen.root)
    if ratios := policy.configured_ratios:
        complete_ratios(desired, ratios)
    if seen.driver_shapes != "all":
        reshape_context = ReshapeContext(
            facts, policy, seen.places, sharing, optional_moves=seen.reshapes
        )
        complete_tree(trees, seen.journal, reshape_context, allocations)
    put_root_traits(
        trees,
        seen.journal,
        policy,
        seen.context.mark,
        {**(facts.traits or {}), **seen.compute_capabilities},
        complete=facts.complete("traits"),
        offers_remote_ports=seen.context.pci.remote_managed(facts.known_devices),
    )
    return base, desired


# --- devices --------------------------------------------------------------------------------------


def _provider_place(seen: Observation, desired: DesiredTree) -> ProviderPlace:
    """Return the tree that the PCI providers of the node are put into, which is taken over like one
    that the journal has nothing of if it is adopted.
    """
    context, root, name = seen.context, seen.root, desired.name_of(seen.root)
    return ProviderPlace(
        seen.named.tree,
        root,
        seen.journal,
        seen.policy.owner_trait,
        choose_layout(seen.policy, seen.named.tree, root) == "nested",
        seen.capabilities.offers(REPARENT),
        context.pci.report and (seen.options.adopt or not seen.journal.providers),
        {device_provider_name(name, card): some for card, some in seen.uses.withheld.items()},
    )


def _devices(
    seen: Observation, base: BaseTree, desired: DesiredTree, place: ProviderPlace
) -> DeviceProviders | Need:
    """Return the PCI providers of the node. The shrinking or misplaced ones are kept as far as
    consumers use them.
    """
    context, facts = seen.context, seen.facts
    if context.gives_back and not context.pci.report:
        return DeviceProviders()
    reported = Reported.of(place.present, seen.root, desired, base, seen.journal)
    kept = DeviceProviders(kept=frozenset(reported.by_name))
    if not context.pci.report:
        return replace(kept, errors=tuple(still_reported(reported)))
    if not facts.complete("pci"):
        return kept
    providers = device_providers_of(
        match_devices(PresentDevices.of(facts.pci or ()), context.pci.specs),
        seen.uses.uses,
        reported,
        seen.policy.mdev.mediated(facts.mdev or ()),
    )
    questionable = sorted(
        {
            *shrinking(providers, reported),
            *(() if place.can_move else misplaced(desired, providers, place)),
        }
    )
    if not questionable:
        return providers
    holders = Holders(tuple(questionable))
    if seen.lacks(holders):
        return holders
    return bounded(providers, reported, seen.answers[holders], seen.uses.settled)


def _merge_inputs(
    seen: Observation,
    base: BaseTree,
    desired: DesiredTree,
    devices: DeviceProviders,
    place: ProviderPlace,
) -> MergeInputs:
    """Return whose each provider and class of the desired tree is."""
    adopt, gives_back = seen.options.adopt, seen.context.gives_back
    inputs = MergeInputs.of(seen.named, seen.journal, base, desired, seen.root, take_over=adopt)
    if place.take_over:
        inputs = replace(inputs, journal=with_cards(inputs.journal, devices, place))
    # Whoever adopts was told what goes with it.
    inputs = replace(inputs, keeps_foreign=gives_back or not adopt, gives_back=gives_back)
    return inputs if seen.driver_shapes == "all" else with_novas_children(inputs)


def _unknown_names(seen: Observation, desired: DesiredTree) -> Need | None:
    """Return the names that ``desired`` adds, if the server has to be asked for some of them."""
    traits, classes = added_names(seen.view.tree, desired)
    names = Names(traits, classes)
    if not seen.lacks(names):
        return None
    left_out = seen.capabilities.left_out_traits(seen.now)
    known = all(name in seen.capabilities.traits or name in left_out for name in traits)
    return None if known and seen.capabilities.has_confirmed(traits, classes) else names


# --- hints ----------------------------------------------------------------------------------------


def _hint(seen: Observation) -> str | None:
    """Return what the operator's options could do better for the node; None if there is nothing."""
    facts, policy, settings = seen.facts, seen.policy, seen.context.pci
    hints = list[str | None]()
    if seen.driver_shapes != "all":
        hints.append(layout_hint(facts.numa, policy, seen.named.tree, seen.root))
        if facts.numa is not None and facts.complete("numa"):
            hints.append(memory_hint(facts.numa, policy.host.dedicated or frozenset()))
    if facts.complete("mdev"):
        hints.append(_mdev_hint(policy.mdev, facts.mdev or ()))
    if settings.report and facts.complete("pci"):
        hints.append(_network_hint(facts.pci or (), settings.specs))
    return "; ".join(filter(None, hints)) or None


def _mdev_hint(policy: MdevPolicy, cards: Sequence[MdevParent]) -> str | None:
    """Return a hint about enabled types that no card has."""
    there = {name for card in cards for name in card.available}
    there |= {mdev.type for card in cards for mdev in card.mdevs}
    if missing := sorted(kind.name for kind in policy.types if kind.name not in there):
        return f"no card has {printable(name_first(missing))} of [devices] enabled_mdev_types"
    return None


def _network_hint(devices: Sequence[PciDevice], specs: Sequence[DeviceSpec]) -> str | None:
    """Return a hint about devices that a spec names and that are not counted in Placement."""
    left = [
        str(match.device.address)
        for match in match_devices(PresentDevices.of(devices), specs)
        if match.spec.physical_network
    ]
    if left:
        named = name_first(left, MANY)
        return f"not counted in Placement, because they have a physical_network: {named}"
    return None
