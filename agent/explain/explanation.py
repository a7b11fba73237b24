"""The explanation of a request on one node, as a frozen value, with the guests that have what it
asks for.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from agent.explain.host_answer import CorrectionSets, HostAnswer
from agent.explain.reasons import Reason, Suggestion
from agent.explain.scheduler_query import SchedulerQuery
from agent.model.devices import DeviceRecord, DeviceRequest
from agent.model.finding import Problem
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.topology import format_cpu_list
from agent.pci.choice import free_devices
from agent.pci.device_request import DeviceRequestError, device_requests, matches
from agent.tracker.node_state import NodeState
from agent.tracker.stored_state import InstanceClaim

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
    free = {device.address for device in free_devices(state.devices)}
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
