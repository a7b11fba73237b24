"""The explanation of a request on one node, as a frozen value, with the guests that have what it
asks for; and whether a host would grant a guest that it has: the guest's flavor asked for again,
without what the guest itself has there. Pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Self

import os_resource_classes as orc

from agent.explain.constraints import Constraint, ProviderRoom, TreeView, constraints_of
from agent.explain.host_answer import CorrectionSets, HostAnswer, host_answer, try_claim
from agent.explain.reasons import Reason, Suggestion, meets, reason_of, without_guest
from agent.explain.scheduler_query import SchedulerQuery, scheduler_query
from agent.model.devices import DeviceRecord, DeviceRequest
from agent.model.facts import Domain
from agent.model.finding import Problem
from agent.model.instance import Instance
from agent.model.names import ConsumerUuid, ProviderUuid, format_cpu_list, name_first
from agent.model.provider_tree import SHARING_TRAIT, ProviderTree
from agent.pci.device_request import (
    EXTRA_SPEC,
    DeviceRequestError,
    device_requests,
    matches,
)
from agent.tracker import nova_commands
from agent.tracker.claim_usage import provider_usage
from agent.tracker.errors import InvalidTrackerRequest, ResourcesUnavailable, UnknownInstance
from agent.tracker.node_state import NodeState, mediated_parts
from agent.tracker.reserving import whole_devices
from agent.tracker.seen_guest import SEEN
from agent.tracker.stored_state import InstanceClaim
from agent.tree.node_trees import OF_CELLS

NO_HOST = "no host would grant its flavor with its image"
NEEDS_CLEANING = "waits to be cleaned after its last guest"


@dataclass(frozen=True, slots=True)
class CellUse:
    """One cell of the host, and the guests that have dedicated CPUs of it."""

    cell: int
    dedicated: str
    """The CPUs offered to dedicated guest CPUs, as a CPU list."""
    without_memory: str
    """The CPUs that would be offered to dedicated guest CPUs if the cell had memory, as a CPU
    list.
    """
    free: str
    """Those of them that no guest has, as a CPU list."""
    shared: str
    """The CPUs offered to shared guest CPUs, as a CPU list."""
    shared_used: int
    """The number of shared guest CPUs."""
    free_memory_mb: int
    """MiB that are not promised."""
    free_pages: tuple[tuple[int, int], ...]
    """Pairs: the size of huge pages in KiB, and how many of them are free."""
    guests: tuple[tuple[ConsumerUuid, str], ...]
    """Pairs: instance, and its CPUs as a CPU list."""


@dataclass(frozen=True, slots=True)
class RequestedDevice:
    """One device that a request names."""

    address: str
    cell: int | None
    state: str
    """``free``, or why no guest can have the device, in words."""
    instance: ConsumerUuid | None = None
    """The guest that has the device."""


def cell_uses(state: NodeState) -> list[CellUse]:
    """Return the cells of the host with their guests."""
    pins: dict[int, list[tuple[ConsumerUuid, str]]] = {cell.id: [] for cell in state.cells}
    for claim in sorted(state.claims.values(), key=attrgetter("created_at", "id")):
        for placed in claim.cells:
            if placed.pinned_cpus and placed.host_cell in pins:
                pins[placed.host_cell].append((claim.instance, format_cpu_list(placed.pinned_cpus)))
    return [
        CellUse(
            cell.id,
            format_cpu_list(cell.dedicated) if cell.memory_mib else "",
            "" if cell.memory_mib else format_cpu_list(cell.dedicated),
            format_cpu_list(cell.free_dedicated) if cell.memory_mib else "",
            format_cpu_list(cell.shared),
            cell.shared_used,
            cell.free_memory_mib,
            tuple((pool.size_kib, pool.free) for pool in cell.huge_pages),
            tuple(pins[cell.id]),
        )
        for cell in state.cells
    ]


def device_uses_of(state: NodeState, claim: InstanceClaim) -> list[RequestedDevice]:
    """Return the devices of the node that one of the claim's requests names, free ones first."""
    requests = [*claim.devices, *_of_aliases(state, claim)]
    free = {device.address for device in whole_devices(state)}
    found = [
        _use(device, free, state)
        for device in sorted(state.devices.values(), key=attrgetter("address"))
        if device.present and any(matches(device, request) for request in requests)
    ]
    return sorted(found, key=lambda use: use.state != "free")


def _of_aliases(state: NodeState, claim: InstanceClaim) -> Sequence[DeviceRequest]:
    try:
        return device_requests(
            claim.instance.flavor.extra_specs, state.host.aliases, None, claim.id
        )
    except DeviceRequestError:
        # The claim itself is denied for that, with the reason.
        return ()


def fewer_devices(
    state: NodeState, claim: InstanceClaim, offered: Mapping[str, int]
) -> Mapping[str, str] | None:
    """Return the extra specs of the claim's flavor with no more devices of each alias than are
    free; None if there is none of one. ``offered``: what Placement has of an alias, where that is
    less than is asked for.
    """
    specs, free = claim.instance.flavor.extra_specs, whole_devices(state)
    requests = _of_aliases(state, claim)
    most = {
        request.alias or "": min(
            request.count,
            offered.get(request.alias or "", request.count),
            sum(matches(device, request) for device in free),
        )
        for request in requests
    }
    if not all(most.values()):
        return None
    if sum(most.values()) == sum(request.count for request in requests):
        return specs
    return {**specs, EXTRA_SPEC: ",".join(f"{alias}:{count}" for alias, count in most.items())}


def _use(device: DeviceRecord, free: set[str], state: NodeState) -> RequestedDevice:
    if device.address in free:
        return RequestedDevice(device.address, device.numa_node, "free")
    claim = state.claims.get(device.holder or "")
    if device.holder is not None:
        instance = claim.instance if claim is not None else None
        return RequestedDevice(device.address, device.numa_node, "held", instance)
    return RequestedDevice(device.address, device.numa_node, next(_blocked(device, state)))


def _blocked(device: DeviceRecord, state: NodeState) -> Iterator[str]:
    if device.used:
        yield NEEDS_CLEANING
    if device.serves != "guests":
        yield "not offered to guests"
    if parts := mediated_parts(state.devices, device, state.mediated):
        yield f"mediated devices of {name_first(sorted(parts))} exist or are promised"
    if device.address in state.host.moved_devices:
        yield f"may be {state.host.moved_devices[device.address]} of a guest on record"
    parent = state.devices.get(device.parent or "")
    if parent is not None and parent.used:
        yield f"its card {parent.address} waits to be cleaned"
    yield "a relative of it is in use"


@dataclass(frozen=True, slots=True)
class ExplainedRequest:
    """What is asked for."""

    query: SchedulerQuery
    claim: InstanceClaim | None = None
    """The guest; None for a query alone, which hosts cannot judge."""


@dataclass(frozen=True, slots=True)
class CandidateAnswer:
    """What Placement says of one node, or of all nodes."""

    candidates: int = 0
    """How many candidates there are."""
    in_placement: bool = True
    """Whether Placement has the node's tree."""
    excluded_by: CorrectionSets[Reason] = field(
        default_factory=lambda: CorrectionSets((), complete=True)
    )
    """The smallest sets of constraints without which there would be candidates."""
    lacking: tuple[Reason, ...] = ()
    """Every constraint that no provider meets by itself, whether in one of the sets or not."""
    refused: str = ""
    """Why Placement refuses the query itself, for example for an unknown trait."""
    asked: int = 0
    """How many queries for candidates were sent."""


@dataclass(frozen=True, slots=True)
class NodeOffer:
    """A node that Placement offers for a request."""

    name: str
    uuid: ProviderUuid
    candidates: int


@dataclass(frozen=True, slots=True)
class AnywhereAnswer:
    """What Placement says of all nodes together."""

    placement: CandidateAnswer
    nodes: tuple[NodeOffer, ...] = ()
    limited: bool = False
    """Whether Placement has more candidates than the query's limit, perhaps of further nodes."""


@dataclass(frozen=True, slots=True)
class NodeExplanation:
    """Whether and why a request fits one node."""

    name: str
    uuid: ProviderUuid
    placement: CandidateAnswer | None = None
    """None if Placement was not asked, because of an error."""
    host: HostAnswer | None = None
    """None for a query alone."""
    cells: tuple[CellUse, ...] = ()
    devices: tuple[RequestedDevice, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    allocated: bool = False
    """Whether the claim names allocations, or its guest is here and the tree has what it asks for,
    so that it needs no candidate.
    """
    pending: int = 0
    """How many changes of the node's tree are not in Placement yet."""
    problems: Sequence[Problem] = ()

    @property
    def fits(self) -> bool:
        """Whether there is a candidate, or an allocation already, and the host grants the guest."""
        if self.placement is None or not (self.placement.candidates or self.allocated):
            return False
        return self.host is None or self.host.granted is not None


def known_guest(recorded: Instance | None, shown: Domain | None) -> Instance | None:
    """Return a guest with its flavor, from its record, or else from what its creator wrote beside
    it; None if the flavor is not known. ``shown``: as the hypervisor shows the guest.
    """
    origin = shown.origin if shown is not None else None
    if origin is not None and not origin.specs_known:
        return None
    if recorded is not None and not recorded.flavor.id.startswith(SEEN):
        return recorded
    if shown is None or origin is None:
        return None
    return Instance(
        uuid=shown.uuid,
        project_id=origin.project_id,
        user_id=origin.user_id,
        flavor=origin.flavor,
        image_properties=shown.image_properties,
        volume_backed=origin.volume_backed,
    )


@dataclass(frozen=True, slots=True)
class GuestHere:
    """A guest as a request to the node that it is on."""

    claim: InstanceClaim
    query: SchedulerQuery
    state: NodeState
    """The node without what the guest has of it."""
    view: TreeView
    """The node's tree, with what the records say that the other guests use."""

    @classmethod
    def of(
        cls,
        state: NodeState,
        instance: Instance,
        tree: ProviderTree,
        now: float,
        *,
        devices_in_placement: bool,
    ) -> Self:
        """Return the guest as a request. ``tree``: the node's, as Placement should hold it.

        :raises InvalidTrackerRequest: flavor and image contradict each other.
        """
        claim = InstanceClaim(id=instance.uuid, node=state.node.uuid, instance=instance)
        query = scheduler_query(
            claim, state.host.aliases, devices_in_placement=devices_in_placement
        )
        without = _without(state, instance.uuid, now)
        return cls(claim, query, without, _view(without, tree))

    def lacking(self, *, when_empty: bool = False) -> list[Reason]:
        """Return the constraints of the flavor that the tree does not meet. What cells and devices
        give is left to the host. ``when_empty``: without those that it would meet without the other
        guests.
        """
        empty = tuple(map(_emptied, self.view.providers))
        judged = replace(self.view, providers=empty) if when_empty else self.view
        query = self.query.query
        return [
            reason_of(constraint, query, self.view)
            for constraint in constraints_of(query, self.query.aliases)
            if self._is_of_tree(constraint) and not meets(constraint, query, judged)
        ]

    def _is_of_tree(self, constraint: Constraint) -> bool:
        # A disabled node keeps its guests.
        if constraint.kind in ("alias", "root-forbidden"):
            return False
        name = constraint.name
        if constraint.kind != "resource":
            return True
        if name in OF_CELLS and self.state.cells:
            return any(room.provider.uuid == self.view.root for room in self.view.rooms(name))
        # A sharing provider that nobody has asked about may give it.
        return name != orc.DISK_GB or bool(self.view.rooms(name))

    def broken(self, now: float) -> list[str]:
        """Return why the guest does not belong here any more, in figures. That the node has more
        guests than it can hold is no reason: that is told of the node.
        """
        # While cells or devices have moved under some guests, no claim gets any: that, too, is told
        # of the node.
        host = replace(self.state.host, moved_devices={})
        settled = replace(self.state, host=host, displaced=frozenset())
        denied = try_claim(settled, self.claim, {}, now)
        of_host = denied.reasons if isinstance(denied, ResourcesUnavailable) else ()
        return [
            *of_host,
            *(
                text
                for reason in self.lacking(when_empty=True)
                for text in reason.numbers or (reason.constraint.text,)
            ),
        ]

    def explained(self, now: float) -> NodeExplanation:
        """Return whether and why the node would grant the guest."""
        lacking = tuple(self.lacking())
        found = NodeExplanation(
            self.state.node.name,
            self.state.node.uuid,
            CandidateAnswer(lacking=lacking),
            host_answer(self.state, self.claim, (), now),
            tuple(cell_uses(self.state)),
            tuple(device_uses_of(self.state, self.claim)),
            allocated=not lacking,
        )
        if found.fits:
            return found
        command = nova_commands.migrate(self.claim.instance.uuid)
        move = Suggestion("guests", command, "whether another host takes it")
        return replace(found, suggestions=(move,))


def has_guest(state: NodeState, guest: ConsumerUuid) -> bool:
    """Return whether the node has the guest, by its records or by the hypervisor."""
    return guest in state.instances or any(one.uuid == guest for one in state.host.guests or ())


def guest_here(
    state: NodeState,
    guest: ConsumerUuid,
    tree: ProviderTree,
    now: float,
    *,
    devices_in_placement: bool,
) -> GuestHere:
    """Return a guest that the node has as a request, see :meth:`GuestHere.of`.

    :raises UnknownInstance: its flavor is not known.
    :raises InvalidTrackerRequest: flavor and image contradict each other.
    """
    shown = next((one for one in state.host.guests or () if one.uuid == guest), None)
    instance = known_guest(state.instances.get(guest), shown)
    if instance is None:
        raise UnknownInstance(
            f"guest {guest}: its flavor is not known, neither from a record nor from what nova "
            "wrote beside it",
            "ask with its flavor: openstack flavor show -f json FLAVOR | agent explain --flavor -",
        )
    try:
        return GuestHere.of(state, instance, tree, now, devices_in_placement=devices_in_placement)
    except InvalidTrackerRequest as error:
        raise InvalidTrackerRequest(
            f"guest {guest}: {NO_HOST}: {error.message}", error.remedy
        ) from error


def _without(state: NodeState, guest: ConsumerUuid, now: float) -> NodeState:
    """Return the node as if the guest had never been there: its devices need no cleaning."""
    held = {claim.id for claim in state.claims_of(guest)}
    mine = {address for address, device in state.devices.items() if device.holder in held}
    without = without_guest(state, guest, now)
    devices = {
        address: replace(device, used=False) if address in mine else device
        for address, device in without.devices.items()
    }
    return replace(without, devices=devices)


def _emptied(room: ProviderRoom) -> ProviderRoom:
    """Return a provider as if nobody used it. What is reserved whole is held until it is free, or
    the operator gives it to nobody new: who has it stays.
    """
    inventory = {
        name: {**record, "reserved": 0} if record["reserved"] >= record["total"] else record
        for name, record in room.inventory.items()
    }
    return replace(room, used={}, inventory=inventory)


def _view(state: NodeState, tree: ProviderTree) -> TreeView:
    used = provider_usage(state, tree)
    return TreeView(
        state.node.uuid,
        tuple(
            ProviderRoom(
                provider.uuid,
                provider.name,
                provider.inventory,
                used.get(provider.uuid, {}),
                frozenset(provider.traits),
                sharing=SHARING_TRAIT in provider.traits,
            )
            for provider in sorted(tree.providers(), key=lambda provider: provider.name)
        ),
    )
