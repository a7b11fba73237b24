"""What is asked of the tracker, as frozen values."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from agent.model.devices import DeviceRequest
from agent.model.flavor import Flavor
from agent.model.instance import Instance
from agent.model.migration import Migration, MigrationType
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.numa.fit import NO_NETWORKS, Networks
from agent.numa.pair import CellLimits

UNTOLD = Flavor("", "", 0, 0)
"""The flavor of an instance that its caller leaves to the records."""

NEWER = {"newer": True}
"""A field that older agents did not know: as long as nothing is said in it, the digest is the one
that they made.
"""

NOT_ASKED = frozenset({"told", "told_migration", "cleared", "clearing"})
"""Fields that are no part of what is asked: which others were said, and what only the records have.
The digest is without them.
"""

Resources = Mapping[ProviderUuid, Mapping[str, int]]
"""Provider to resource class to amount, as the scheduler allocated it."""


@dataclass(frozen=True, slots=True)
class ClaimLimits:
    """The most that may be used of the node in all, MiB and CPUs; None is unlimited. ``cells``: of
    each host cell.
    """

    memory_mb: int | None = None
    vcpus: int | None = None
    disk_mb: int | None = None
    cells: CellLimits | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceClaim:
    """Room for a new guest. ``id``: chosen by the caller, so that it can ask again after a lost
    answer.
    """

    id: str
    node: ProviderUuid
    instance: Instance
    limits: ClaimLimits = ClaimLimits()
    allocations: Resources = field(default_factory=dict)
    devices: tuple[DeviceRequest, ...] = ()
    networks: Networks = field(default=NO_NETWORKS, metadata=NEWER)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveClaim:
    """Room for a guest that comes from elsewhere, or gets another flavor here; or what the guest's
    host is told of that.

    ``node``: the destination; ``host``: the name of its host, which a source with a store of its
    own cannot know. ``instance``: as the caller knows it, where there is no record of it; its
    flavor may be ``UNTOLD`` where there is one. ``told``: those of its fields that the caller said,
    which have to agree with a record. ``flavor``: the new one of a resize, else None.
    ``migration``: the record that the caller made, None to have one made whose uuid is the claim's
    id; ``told_migration``: those of its fields that the caller said. ``page_size_kib``: of the
    pages that a guest with cells runs on, which a destination with a store of its own cannot know.
    """

    id: str
    type: MigrationType
    node: ProviderUuid
    instance: Instance
    host: str | None = field(default=None, metadata=NEWER)
    told: frozenset[str] = frozenset()
    flavor: Flavor | None = None
    migration: Migration | None = None
    told_migration: frozenset[str] = frozenset()
    page_size_kib: int | None = field(default=None, metadata=NEWER)
    limits: ClaimLimits = ClaimLimits()
    allocations: Resources = field(default_factory=dict)
    devices: tuple[DeviceRequest, ...] = ()
    networks: Networks = field(default=NO_NETWORKS, metadata=NEWER)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClaim:
    """Devices for a guest that is there: an interface that is attached, a port of a
    live migration.
    """

    id: str
    node: ProviderUuid
    instance: ConsumerUuid
    devices: tuple[DeviceRequest, ...]


def digest(request: InstanceClaim | MoveClaim | DeviceClaim) -> str:
    """A text that is the same exactly for the same request."""
    return hashlib.sha256(json.dumps(request, sort_keys=True, default=_plain).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        said = (
            (one, getattr(value, one.name)) for one in fields(value) if one.name not in NOT_ASKED
        )
        return {
            one.name: found
            for one, found in said
            if not (one.metadata.get("newer") and found == one.default)
        }
    return sorted(value) if isinstance(value, frozenset) else dict(value)
