"""Which devices and units a guest gets: pure choices among what is free, all of what is asked or nothing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from agent.model.assigned_unit import UnitRow
from agent.model.guest import PciPolicy
from agent.model.held_device import DeviceRow
from agent.numa.host import HostCell
from agent.tracker.requests import DeviceRequest, Resources

# Names that a request may give beside the operator's tags.
OWN_NAMES = ("address", "vendor_id", "product_id", "type")


@dataclass(frozen=True, slots=True)
class Shortage:
    """What is missing, in words."""

    reason: str


def free_devices(devices: Mapping[str, DeviceRow]) -> list[DeviceRow]:
    """The devices that can be had. One is out of reach while its parent or a child of it is held, or the host itself uses a child of it.

    Those first that stand in nobody's way: a PF with free VFs comes after all others. Then by address.
    """
    held = {one.address for one in devices.values() if one.holder is not None}
    parents = {one.parent for one in devices.values() if (one.holder is not None or one.serves == "host") and one.parent is not None}
    offered = [one for one in devices.values() if one.present and one.serves == "guests"]
    free = [one for one in offered if one.address not in held | parents and one.parent not in held]
    in_the_way = {one.parent for one in free}
    return sorted(free, key=lambda one: (one.address in in_the_way, one.address))


def matches(device: DeviceRow, request: DeviceRequest) -> bool:
    """Whether the device has everything that the request names."""
    has = {**device.tags, **{name: getattr(device, name) for name in OWN_NAMES}}
    return all(has.get(name) == value for name, value in request.spec.items())


def choose_devices(free: Sequence[DeviceRow], requests: Sequence[DeviceRequest]) -> list[tuple[DeviceRow, DeviceRequest]] | Shortage:
    """A device for each that is asked, the first of ``free`` first; never a PF together with one of its VFs."""
    left, chosen = list(free), []
    # Who has the least choice chooses first, so that nobody takes from others what is all the same to him.
    for request in sorted(requests, key=lambda one: sum(matches(device, one) for device in free)) if len(requests) > 1 else requests:
        for got in range(request.count):
            device = next((one for one in left if matches(one, request)), None)
            if device is None:
                what = ", ".join(f"{name}={value}" for name, value in sorted(request.spec.items()))
                return Shortage(f"{request.count} devices with {what or 'any properties'} wanted, {got} free")
            chosen.append((device, request))
            left = [one for one in left if one is not device and one.parent != device.address and one.address != device.parent]
    return chosen


def choose_units(units: Iterable[UnitRow], wanted: Resources) -> tuple[list[UnitRow], list[str]]:
    """The units to take, by their identifiers' order, and the reasons why some cannot be had.

    A provider or class for which there are no units here is somebody else's, or not of the kind that is assigned.
    """
    rows, chosen, reasons = sorted(units, key=attrgetter("identifier")), [], []
    for provider, resources in sorted(wanted.items()):
        for name, amount in sorted(resources.items()):
            known = [one for one in rows if one.provider == provider and one.resource_class == name]
            free = [one for one in known if one.holder is None and one.present]
            if known and len(free) < amount:
                reasons.append(f"{amount} units of {name} wanted, {len(free) or 'none'} free")
            elif known:
                chosen += free[:amount]
    return chosen, reasons


@dataclass(frozen=True, slots=True)
class FreeDevices:
    """The devices that one guest wants, as the fit asks for them. ``host``: all cells; ``policy``: how near they must be."""

    free_ones: Sequence[DeviceRow]
    requests: tuple[DeviceRequest, ...]
    host: Sequence[HostCell]
    policy: PciPolicy

    @property
    def wanted(self) -> bool:
        """Whether the guest wants any."""
        return bool(self.requests)

    def free(self, cell: int) -> int:
        """How many wanted devices are on the cell."""
        return sum(one.numa_node == cell and any(matches(one, request) for request in self.requests) for one in self.free_ones)

    def fits(self, cells: frozenset[int]) -> bool:
        """Whether all can be had if the guest sits on ``cells``."""
        return not isinstance(self.chosen(cells), Shortage)

    def chosen(self, cells: frozenset[int]) -> list[tuple[DeviceRow, DeviceRequest]] | Shortage:
        """Those that the guest gets there, local ones first."""
        near = [one for one in self.free_ones if self._allowed(one, cells)]
        return choose_devices(sorted(near, key=lambda one: one.numa_node not in cells), self.requests)

    def cost(self, cells: frozenset[int]) -> tuple[int, int]:
        """How many would not be local, and the sum of their distances to the nearest cell."""
        chosen = self.chosen(cells)
        if isinstance(chosen, Shortage):
            return 0, 0
        far = [one.numa_node for one, _ in chosen if one.numa_node is not None and one.numa_node not in cells]
        distances = {cell.id: cell.distances for cell in self.host}
        return len(far), sum(min((distances.get(cell, {}).get(node, 0) for cell in cells), default=0) for node in far)

    def _allowed(self, device: DeviceRow, cells: frozenset[int]) -> bool:
        node = device.numa_node
        if self.policy == "preferred" or node in cells:
            return True
        if self.policy == "socket":
            sockets = {cell.id: cell.socket for cell in self.host}
            return node in sockets and sockets[node] is not None and sockets[node] in {sockets[cell] for cell in cells}
        return self.policy == "legacy" and node is None
