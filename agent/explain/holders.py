"""Who has the CPUs of a node's cells and the devices that a guest requests. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from agent.model.devices import DeviceRecord, DeviceRequest
from agent.model.names import ConsumerUuid
from agent.model.topology import format_cpu_list
from agent.pci.choice import free_devices
from agent.pci.device_request import DeviceRequestError, device_requests, matches
from agent.tracker.node_state import NodeState
from agent.tracker.requests import InstanceClaim

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
