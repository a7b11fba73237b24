"""Which devices a request may have, the best first: by kind, by nearness to the guest's cells, by provider. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent.model.device_request import DeviceRequest
from agent.model.guest import PciPolicy
from agent.model.held_device import DeviceRow
from agent.model.names import ProviderUuid

# Names that a request may give beside the operator's tags, and those that only Placement needs.
OWN_NAMES = ("address", "vendor_id", "product_id", "type")
OF_PLACEMENT = frozenset({"resource_class", "traits"})
FAR = 1_000_000


@dataclass(frozen=True, slots=True)
class Nearness:
    """The host's cells: the socket of each, if known, and the distances from each to others."""

    sockets: Mapping[int, int | None] = field(default_factory=dict)
    distances: Mapping[int, Mapping[int, int]] = field(default_factory=dict)

    def same_socket(self, node: int | None, cells: frozenset[int]) -> bool:
        """Whether a device's cell is on a socket of one of ``cells``; never, unless every cell's socket is known."""
        if node is None or node not in self.sockets or None in self.sockets.values():
            return False
        return self.sockets[node] in {self.sockets.get(cell) for cell in cells}

    def distance(self, node: int, cells: frozenset[int]) -> int:
        """To the nearest of ``cells``."""
        return min((self.distances.get(cell, {}).get(node, FAR) for cell in cells), default=FAR)


def matches(device: DeviceRow, request: DeviceRequest) -> bool:
    """Whether the device is of a kind that the request names. What it does not ask for by name it does not get."""
    has = {**device.tags, **{name: str(getattr(device, name)) for name in OWN_NAMES}}
    fitting = [spec for spec in request.specs if _is_kind(has, spec)]
    asked = any(spec.get("type") == device.type or "address" in spec for spec in fitting)
    if not fitting or (device.type in ("type-PF", "vdpa") and not asked):
        return False
    if device.tags.get("remote_managed") == "true" and not any("remote_managed" in spec for spec in fitting):
        return False
    migratable = {spec.get("live_migratable") for spec in request.specs}
    return len(migratable) > 1 or migratable in ({None}, {device.tags.get("live_migratable")})


def candidates(
    free: Sequence[DeviceRow],
    request: DeviceRequest,
    cells: frozenset[int] | None,
    policy: PciPolicy,
    nearness: Nearness,
    providers: Mapping[str, ProviderUuid],
) -> list[DeviceRow]:
    """The devices of ``free`` that the request may have, the best first. ``cells``: those of the guest, None if it floats.

    ``providers``: which provider counts the device of an address.
    """
    of_kind = [one for one in free if matches(one, request)]
    near = of_kind if cells is None else _near(of_kind, request.count, cells, request.policy or policy, nearness)
    if not request.providers:
        return near
    wanted, there = Counter(request.providers), Counter(providers.get(one.address) for one in near)
    enough = {uuid for uuid, count in wanted.items() if there[uuid] >= count}
    return [one for one in near if providers.get(one.address) in enough]


def _is_kind(has: Mapping[str, str], spec: Mapping[str, str]) -> bool:
    return all(has.get(name, "").lower() == value.lower() for name, value in spec.items() if name not in OF_PLACEMENT | {"live_migratable"})


def _near(devices: list[DeviceRow], count: int, cells: frozenset[int], policy: PciPolicy, nearness: Nearness) -> list[DeviceRow]:
    """What the policy allows: nothing farther than is needed."""
    local = [one for one in devices if one.numa_node in cells]
    if policy == "required" or len(local) >= count:
        return local
    if policy == "socket":
        return [one for one in devices if nearness.same_socket(one.numa_node, cells)]
    unknown = [one for one in devices if one.numa_node is None]
    if policy == "legacy" or len(local) + len(unknown) >= count:
        return local + unknown
    return sorted(devices, key=lambda one: _rank(one, cells, nearness))


def _rank(device: DeviceRow, cells: frozenset[int], nearness: Nearness) -> tuple[int, int]:
    """Local, on the same socket, unknown, then by distance."""
    node = device.numa_node
    if node in cells:
        return 0, 0
    if nearness.same_socket(node, cells):
        return 1, 0
    return (2, 0) if node is None else (3, nearness.distance(node, cells))
