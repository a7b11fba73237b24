"""What is asked of the tracker, as frozen values."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from agent.model.device_request import DeviceRequest
from agent.model.flavor import Flavor
from agent.model.instance import Instance
from agent.model.migration import Migration, MigrationType
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.numa.pair import Limits as CellLimits

UNTOLD = Flavor("", "", 0, 0)
"""The flavor of an instance that its caller leaves to the records."""

Resources = Mapping[ProviderUuid, Mapping[str, int]]
"""Provider to resource class to amount, as the scheduler allocated it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that may be used of the node in all, MiB and CPUs; None is unlimited. ``cells``: of each host cell."""

    memory_mb: int | None = None
    vcpus: int | None = None
    disk_mb: int | None = None
    cells: CellLimits | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceClaim:
    """Room for a new guest. ``id``: chosen by the caller, so that it can ask again after a lost answer."""

    id: str
    node: ProviderUuid
    instance: Instance
    limits: Limits = Limits()
    allocations: Resources = field(default_factory=dict)
    devices: tuple[DeviceRequest, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveClaim:
    """Room for a guest that comes from elsewhere, or gets another flavor here.

    ``instance``: as the caller knows it, where there is no record of it; its flavor may be ``UNTOLD`` where there is one.
    ``flavor``: the new one of a resize, else None. ``migration``: the record that the caller made, None to have one made
    whose uuid is the claim's id.
    """

    id: str
    type: MigrationType
    node: ProviderUuid
    instance: Instance
    flavor: Flavor | None = None
    migration: Migration | None = None
    limits: Limits = Limits()
    allocations: Resources = field(default_factory=dict)
    devices: tuple[DeviceRequest, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClaim:
    """Devices for a guest that is there: an interface that is attached, a port of a live migration."""

    id: str
    node: ProviderUuid
    instance: ConsumerUuid
    devices: tuple[DeviceRequest, ...]


def digest(request: InstanceClaim | MoveClaim | DeviceClaim) -> str:
    """A text that is the same exactly for the same request."""
    return hashlib.sha256(json.dumps(request, sort_keys=True, default=_plain).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    return sorted(value) if isinstance(value, frozenset) else dict(value)
