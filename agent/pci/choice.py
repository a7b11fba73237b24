"""The choice of devices for a guest: a device of its own for everything it asks for, or nothing. Pure.

A PF is out of reach while one of its VFs is taken, and the reverse; the test whether all can be had is the choice itself, so
that no test says yes where the choice then fails.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent.model.device_request import DeviceRequest
from agent.model.guest import PciPolicy
from agent.model.held_device import DeviceRow
from agent.model.names import ProviderUuid, printable
from agent.pci.wanted import Nearness, candidates, matches

# How many devices may be tried before the search is given up.
BUDGET = 10_000

Chosen = list[tuple[DeviceRow, DeviceRequest]]
Slot = tuple[DeviceRequest, list[DeviceRow]]
"""One device that is asked for, and those that will do."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """What is missing, in words."""

    reason: str


def free_devices(devices: Mapping[str, DeviceRow]) -> list[DeviceRow]:
    """The devices that can be had. One is out of reach while its parent or a child of it is held, or the host itself uses a child of it.

    The ones first that cost others least: VFs of a PF that is in use already, a PF with free VFs last. Then by address.
    """
    held = {one.address for one in devices.values() if one.holder is not None}
    parents = {one.parent for one in devices.values() if (one.holder is not None or one.serves == "host") and one.parent is not None}
    offered = [one for one in devices.values() if one.present and one.serves == "guests"]
    free = [one for one in offered if one.address not in held | parents and one.parent not in held]
    in_the_way = {one.parent for one in free}
    whole = {one.address for one in free}
    return sorted(free, key=lambda one: (one.address in in_the_way, one.parent is not None and one.parent in whole, _place(one.address)))


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices that one guest wants, of those that are ``free``; as the fit asks for them. ``policy``: how near they must be."""

    free_ones: Sequence[DeviceRow]
    requests: tuple[DeviceRequest, ...]
    policy: PciPolicy = "legacy"
    nearness: Nearness = field(default_factory=Nearness)
    providers: Mapping[str, ProviderUuid] = field(default_factory=dict)

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

    def cost(self, cells: frozenset[int]) -> tuple[int, int]:
        """How many would not be local, and the sum of their distances to the nearest cell."""
        chosen = self.chosen(cells)
        if isinstance(chosen, Shortage):
            return 0, 0
        far = [one.numa_node for one, _ in chosen if one.numa_node is not None and one.numa_node not in cells]
        return len(far), sum(self.nearness.distance(node, cells) for node in far)

    def chosen(self, cells: frozenset[int] | None) -> Chosen | Shortage:
        """The devices that the guest gets on ``cells``; None: it floats."""
        slots: list[Slot] = []
        for request in self.requests:
            found = candidates(self.free_ones, request, cells, self.policy, self.nearness, self.providers)
            if len(found) < request.count:
                return Shortage(f"{request.count} devices with {_words(request)} wanted, {len(found)} free{'' if cells is None else ' near enough'}")
            slots += self._slots(request, found)
        # Who has the least choice chooses first, so that nobody takes from others what is all the same to him.
        seated = _Search(self.providers).seat(sorted(slots, key=lambda slot: len(slot[1])))
        if seated is None:
            return Shortage(f"each of {', '.join(_words(one) for one in self.requests)} is free, but not all at once")
        return seated

    def _slots(self, request: DeviceRequest, found: list[DeviceRow]) -> list[Slot]:
        if not request.providers:
            return [(request, found)] * request.count
        return [(request, [one for one in found if self.providers.get(one.address) == uuid]) for uuid in request.providers]


class _Search:
    """Tries one device after the other, and goes back where that leads nowhere."""

    def __init__(self, providers: Mapping[str, ProviderUuid]) -> None:
        self._providers, self._left = providers, BUDGET

    def seat(self, slots: Sequence[Slot], taken: frozenset[str] = frozenset(), blocked: frozenset[str] = frozenset()) -> Chosen | None:
        """A device for each slot. ``blocked``: addresses out of reach because of what is taken."""
        if not slots:
            return []
        (request, found), rest = slots[0], slots[1:]
        tried = set()
        for device in found:
            kind = self._kind(device)
            if kind in tried or device.address in taken | blocked or device.parent in taken:
                continue
            # One of a kind is as good as another, so that only one of them is tried.
            tried.add(kind)
            self._left -= 1
            if self._left < 0:
                return None
            further = self.seat(rest, taken | {device.address}, blocked | ({device.parent} if device.parent is not None else frozenset()))
            if further is not None:
                return [(device, request), *further]
        return None

    def _kind(self, device: DeviceRow) -> tuple[object, ...]:
        pool = device.address if device.parent is None else device.parent
        tags = tuple(sorted(device.tags.items()))
        return pool, device.type, device.vendor_id, device.product_id, device.numa_node, tags, self._providers.get(device.address)


def _words(request: DeviceRequest) -> str:
    kinds = [", ".join(f"{name}={value}" for name, value in sorted(spec.items())) or "any properties" for spec in request.specs]
    return printable(" or ".join(kinds))


def _place(address: str) -> tuple[int, ...]:
    """Addresses in the order of their numbers."""
    return tuple(int(part, 16) for part in address.replace(".", ":").split(":"))
