"""The requests to the tracker, as frozen values. Whoever makes them has checked that ids, states
and amounts exist, as the local API does (:mod:`agent.api.requests`).
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, Literal

from agent.model.claim import Migration, MigrationType
from agent.model.devices import DeviceRequest
from agent.model.instance import Flavor, Instance, TaskState, VmState
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.numa.fit import NO_NETWORKS, Networks
from agent.numa.pair import CellLimits

RECORDED_FLAVOR = Flavor("", "", 0, 0)
"""The flavor of an instance whose caller leaves the flavor to the records."""

NEWER = {"newer": True}
"""Metadata of a field that older agents did not know: while the field has its default, the digest
is the one that those agents computed.
"""

NOT_ASKED = frozenset({"given_fields", "given_migration_fields", "cleared", "clearing"})
"""Fields that are no part of the request: the names of the fields that the caller gave, and what
only the records have. The digest leaves them out.
"""

Resources = Mapping[ProviderUuid, Mapping[str, int]]
"""Provider to resource class to amount, as the scheduler allocated them."""


@dataclass(frozen=True, slots=True)
class ClaimLimits:
    """The most that all guests together may use of the node; None is unlimited."""

    memory_mb: int | None = None
    """MiB."""
    vcpus: int | None = None
    """Number of CPUs."""
    disk_mb: int | None = None
    """MiB."""
    cells: CellLimits | None = None
    """The limits of each host cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceClaim:
    """Request for the resources of a new guest."""

    id: str
    """Chosen by the caller, so that the request can be repeated after a lost answer."""
    node: ProviderUuid
    instance: Instance
    limits: ClaimLimits = ClaimLimits()
    allocations: Resources = field(default_factory=dict)
    devices: tuple[DeviceRequest, ...] = ()
    networks: Networks = field(default=NO_NETWORKS, metadata=NEWER)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveClaim:
    """Request for the resources of a guest that moves to this node or is resized on it; or the
    notice to the guest's present host of such a move.
    """

    id: str
    type: MigrationType
    node: ProviderUuid
    """The destination."""
    instance: Instance
    """The instance as the caller knows it, used where there is no record of it. The flavor may be
    ``RECORDED_FLAVOR`` where there is a record.
    """
    host: str | None = field(default=None, metadata=NEWER)
    """The name of the destination's host, because a source with a store of its own cannot know it.
    """
    given_fields: frozenset[str] = frozenset()
    """The fields of ``instance`` that the caller gave. They have to agree with the record."""
    flavor: Flavor | None = None
    """The new flavor of a resize, else None."""
    migration: Migration | None = None
    """The migration record that the caller created; None to have one created with the claim's id as
    its uuid.
    """
    given_migration_fields: frozenset[str] = frozenset()
    """The fields of ``migration`` that the caller gave."""
    page_size_kib: int | None = field(default=None, metadata=NEWER)
    """The size of the pages that a guest with cells runs on, in KiB, because a destination with a
    store of its own cannot know it.
    """
    limits: ClaimLimits = ClaimLimits()
    allocations: Resources = field(default_factory=dict)
    devices: tuple[DeviceRequest, ...] = ()
    networks: Networks = field(default=NO_NETWORKS, metadata=NEWER)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClaim:
    """Request for devices for a guest that is there: an interface that is attached, or a port of a
    live migration.
    """

    id: str
    node: ProviderUuid
    instance: ConsumerUuid
    devices: tuple[DeviceRequest, ...]


class Unset:
    """Type of a field that the caller did not give, for fields where None has a meaning."""


UNSET = Unset()


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceUpdate:
    """The requested changes to an instance's record."""

    vm_state: VmState | Unset = UNSET
    task_state: TaskState | Unset | None = UNSET
    deleted: bool | Unset = UNSET
    hidden: bool | Unset = UNSET
    """Whether the instance is the copy in a move between cells of the cloud that does not count."""
    image_properties: Mapping[str, str] | Unset = UNSET
    """The properties of the image with which the instance is rebuilt in place."""
    version: int | None = None
    """The version of the record that the caller has seen, None if any version will do."""


BuildResult = Literal["failed", "succeeded"]


def digest(request: InstanceClaim | MoveClaim | DeviceClaim) -> str:
    """Return a text that is equal exactly for equal requests."""
    return hashlib.sha256(json.dumps(request, sort_keys=True, default=_plain).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        kind: Any = type(value)
        pairs = ((name, getattr(value, name), left_out) for name, left_out in _digested(kind))
        return {name: found for name, found, left_out in pairs if found != left_out}
    return sorted(value) if isinstance(value, frozenset) else dict(value)


@cache
def _digested(kind: Any) -> Sequence[tuple[str, Any]]:
    """Return the fields of a request of that kind that the digest contains, each with the value
    that is left out of it.
    """
    return [
        (field.name, field.default if field.metadata.get("newer") else _NEVER)
        for field in fields(kind)
        if field.name not in NOT_ASKED
    ]


_NEVER = object()
