"""The devices of a node under audit: put them into the desired tree, and plan the repair of their
allocations.

Placement is asked only for the consumers of providers that shrink or move, and of allocations to
correct.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from agent.model.facts import HostFacts
from agent.model.mirror import REPARENT, Journal, PlacementView, ServerCapabilities
from agent.model.names import ProviderUuid, name_first, printable
from agent.model.operation import Reshape
from agent.model.provider_tree import BaseTree, DesiredTree
from agent.model.report import Drift, Outcome
from agent.pci.settings import PciSettings, PresentDevices, match_devices
from agent.placement.client import PlacementClient
from agent.placement.merge import ADOPT, Target
from agent.placement.merge_inputs import MergeInputs
from agent.placement.node_state import NodePlacementState
from agent.tree.allocation_repair import (
    AllocationRepair,
    Counted,
    Surplus,
    all_wrong,
    counted,
    holders_of_unknown_shares,
    plan_repair,
    strangers,
    surpluses,
    to_correct,
    unknown_shares,
    wrong_owners,
)
from agent.tree.device_providers import (
    DeviceProviders,
    Reported,
    all_kept,
    bounded,
    device_providers_of,
    shrinking,
    still_reported,
)
from agent.tree.device_tree import ProviderPlace, misplaced, put_devices, with_cards
from agent.tree.host_tree import choose_layout
from agent.tree.policy import MdevPolicy, Policy
from agent.tree.reported_cards import DeviceUses, device_provider_name

LOG = logging.getLogger(__name__)

# Seconds that a guest must have held more than its share before its allocation is lowered, because
# passes may follow each other at once.
LEAST_APART = 30.0
LATER = "it is corrected in a later pass"

MANY = 3
"""How many devices a message names."""


@dataclass(frozen=True, slots=True)
class DriverTree:
    """The tree of a node as its driver shapes it, before devices, provider files and merge."""

    base: BaseTree
    """The tree from which the driver started: what others own."""
    desired: DesiredTree


@dataclass(frozen=True, slots=True)
class PlacedDeviceTree:
    """A desired tree with its devices."""

    tree: DesiredTree
    part: DeviceProviders
    place: ProviderPlace
    drift: tuple[Drift, ...] = ()
    """Drift of the devices."""
    anew: bool = False
    """Some providers are removed, to be created again at another place."""

    def taken_over(self, by: MergeInputs) -> MergeInputs:
        """Return ``by`` with this desired tree; for a tree that is being taken over, also with the
        journal entries of its PCI providers.
        """
        return replace(
            by,
            desired=self.tree,
            journal=with_cards(by.journal, self.part, self.place)
            if self.place.take_over
            else by.journal,
        )


class Surpluses:
    """Shares of devices that guests of one node held in excess in earlier passes. Kept for the life
    of the process.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: Mapping[Surplus, float] = {}

    def lasting(self, seen: Collection[Surplus]) -> frozenset[Surplus]:
        """Return the surpluses of ``seen`` that every pass since an earlier one, long enough ago,
        has seen.
        """
        now, before = self._clock(), self._since
        self._since = {surplus: before.get(surplus, now) for surplus in seen}
        return frozenset(
            surplus
            for surplus, since in self._since.items()
            if surplus in before and now - since >= LEAST_APART
        )


def log_corrected(repair: AllocationRepair, outcomes: Iterable[Outcome]) -> None:
    """Log which instances' allocations of devices were corrected."""
    written = {
        consumer
        for outcome in outcomes
        if outcome.status == "done" and isinstance(outcome.operation, Reshape)
        for consumer in outcome.operation.allocations
    }
    if repair.move is not None and (corrected := sorted(written & repair.move.changed)):
        LOG.info("allocations of devices were corrected for instances %s", ", ".join(corrected))


def device_hints(facts: HostFacts, policy: Policy, settings: PciSettings) -> Iterator[str]:
    """Yield hints about device options that have no effect on this host, or not the apparent
    one.
    """
    if facts.complete("mdev"):
        there = {name for card in facts.mdev or () for name in card.available} | {
            mdev.type for card in facts.mdev or () for mdev in card.mdevs
        }
        if missing := sorted(kind.name for kind in policy.mdev.types if kind.name not in there):
            yield f"no card has {printable(', '.join(missing))} of [devices] enabled_mdev_types"
    if settings.report and facts.complete("pci"):
        left = [
            str(match.device.address)
            for match in match_devices(PresentDevices.of(facts.pci or ()), settings.specs)
            if match.spec.physical_network
        ]
        if left:
            named = name_first(left, MANY)
            yield f"not counted in Placement, because they have a physical_network: {named}"


@dataclass(frozen=True, slots=True)
class ObservedDevices:
    """The PCI providers that the devices of a node come to, and the tree that they are put into."""

    providers: DeviceProviders
    place: ProviderPlace
    asked: bool = False
    """Placement was asked for consumers, as in each attempt with the same devices."""


def observe_devices(
    client: PlacementClient,
    settings: PciSettings,
    policy: MdevPolicy,
    facts: HostFacts,
    uses: DeviceUses,
    driver_tree: DriverTree,
    place: ProviderPlace,
) -> ObservedDevices:
    """Return the PCI providers of a node. Placement is asked for the consumers of shrinking or
    misplaced ones, which are kept as far as consumers use them.

    ``uses``: which consumer has which device.
    """
    reported = Reported.of(
        place.present, place.root, driver_tree.desired, driver_tree.base, place.journal
    )
    if not settings.report:
        kept = replace(all_kept(reported), errors=tuple(still_reported(reported)))
        return ObservedDevices(kept, place)
    if not facts.complete("pci"):
        return ObservedDevices(all_kept(reported), place)
    present = PresentDevices.of(facts.pci or ())
    providers = device_providers_of(
        match_devices(present, settings.specs),
        uses.uses,
        reported,
        policy.mediated(facts.mdev or ()),
    )
    questionable = sorted(
        {
            *shrinking(providers, reported),
            *(() if place.can_move else misplaced(driver_tree.desired, providers, place)),
        }
    )
    if not questionable:
        return ObservedDevices(providers, place)
    # Asked each time, because giving back an allocation moves no generation.
    users = dict(
        zip(questionable, client.exchange.each(client.consumers, questionable), strict=True)
    )
    return ObservedDevices(bounded(providers, reported, users, uses.settled), place, asked=True)


def provider_place(
    view: PlacementView,
    journal: Journal,
    root: ProviderUuid,
    name: str,
    policy: Policy,
    settings: PciSettings,
    capabilities: ServerCapabilities,
    uses: DeviceUses,
    *,
    adopt: bool,
) -> ProviderPlace:
    """Return the tree that the PCI providers of the node ``name`` are put into. ``adopt``: the tree
    is taken over, like a tree that the journal has nothing of.
    """
    return ProviderPlace(
        view.tree,
        root,
        journal,
        policy.owner_trait,
        choose_layout(policy, view.tree, root) == "nested",
        capabilities.offers(REPARENT),
        settings.report and (adopt or not journal.providers),
        {device_provider_name(name, card): some for card, some in uses.withheld.items()},
    )


def place_devices(observed: ObservedDevices, driver_tree: DriverTree) -> PlacedDeviceTree:
    """Return the tree of the driver with the PCI providers of the node. Pure."""
    tree, providers = driver_tree.desired.copy(), observed.providers
    placed = put_devices(tree, driver_tree.base, providers, observed.place)
    return PlacedDeviceTree(
        tree, providers, observed.place, (*providers.drift, *placed.drift), bool(placed.anew)
    )


@dataclass(frozen=True, slots=True)
class DeviceAllocations:
    """The allocations of devices of one node."""

    placement_state: NodePlacementState
    uses: DeviceUses
    """Which consumer has which device."""
    surpluses: Surpluses
    """What guests held in excess in earlier passes."""

    def repair(
        self, client: PlacementClient, devices: PlacedDeviceTree, target: Target, *, why_not: str
    ) -> AllocationRepair:
        """Return the corrections that the guests' allocations of devices need. ``why_not``: why
        they cannot be made now; empty if they can.
        """
        if not self.uses.settled or not devices.part.providers:
            return AllocationRepair()
        count = counted(devices.part, target.tree, self.uses)
        tree = self.placement_state.own_tree()
        ours = [
            uuid
            for uuid in tree.get_provider_uuids()
            if uuid in target.journal.providers and tree.has_inventory(uuid)
        ]
        consumers = self.placement_state.consumers(client, ours)
        why = (
            why_not
            or ("" if target.journal.adopted else ADOPT)
            or (LATER if target.invalid else "")
        )
        # The known consumers may be outdated, because giving back an allocation moves no
        # generation; those to be corrected are asked for again.
        doubtful = (
            wrong_owners(count, consumers)
            if why
            else {
                *(owner for owner, *_ in surpluses(count, consumers)),
                *strangers(count, consumers),
            }
        )
        self.placement_state.reread_allocations(
            client, {*holders_of_unknown_shares(count, consumers, self.uses), *doubtful}, "devices"
        )
        consumers = self.placement_state.consumers(client, ours)
        drift = tuple(unknown_shares(count, consumers, self.uses, target.tree))
        if why:
            return AllocationRepair(drift=(*drift, *all_wrong(count, consumers, target.tree, why)))
        found = self._healed(client, count, target, ours)
        return replace(found, drift=(*drift, *found.drift))

    def _healed(
        self, client: PlacementClient, count: Counted, target: Target, ours: list[ProviderUuid]
    ) -> AllocationRepair:
        """Read the allocations to correct and plan their repair."""
        consumers = self.placement_state.consumers(client, ours)
        lowered = self.surpluses.lasting(
            [surplus for surplus in surpluses(count, consumers) if surplus[0] not in self.uses.busy]
        )
        allocations = self.placement_state.allocations(
            client, to_correct(count, consumers, lowered)
        )
        return plan_repair(
            count,
            self.placement_state.consumers(client, ours),
            allocations,
            target.tree,
            ours,
            lowered,
        )
