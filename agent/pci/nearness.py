"""Which devices a request may have: by kind, and by nearness to the guest's cells. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.model.device_request import DeviceRequest
from agent.model.device_record import DeviceRecord

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


def matches(device: DeviceRecord, request: DeviceRequest) -> bool:
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


def _is_kind(has: Mapping[str, str], spec: Mapping[str, str]) -> bool:
    return all(has.get(name, "").lower() == value.lower() for name, value in spec.items() if name not in OF_PLACEMENT | {"live_migratable"})
