"""The requests to the tracker, as frozen values, with the checks of those that no node could grant:
states, amounts or ids that do not exist. Pure; all faults of a request are reported at once.

The local API checks its requests before; these checks are for callers in the process, and keep
invalid values out of the records.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, Literal, get_args

from agent.model.claim import STATUSES, TYPES, Migration, MigrationType
from agent.model.devices import DeviceRequest
from agent.model.instance import TASK_STATES, VM_STATES, Flavor, Instance, TaskState, VmState
from agent.model.inventory import MAX_INT
from agent.model.names import ConsumerUuid, ProviderUuid, is_uuid, printable
from agent.numa.fit import NO_NETWORKS, Networks
from agent.numa.pair import CellLimits
from agent.tracker.errors import InvalidAmount, InvalidTrackerRequest, UnknownState

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
BUILD_RESULTS: frozenset[BuildResult] = frozenset(get_args(BuildResult))


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


# --- checks ---------------------------------------------------------------------------------------

# More than any host has; the limit exists because placing each CPU costs time.
MAX_VCPUS = 65536
MAX_GB = 1048576
MAX_DEVICES = 1024


def check_claim(request: InstanceClaim | MoveClaim | DeviceClaim) -> None:
    """Check that the request is valid on any node.

    :raises InvalidTrackerRequest: it is not; every fault is named.
    """
    raise_all(_claim_errors(request))


def check_update(update: InstanceUpdate) -> None:
    """Check that an instance can be in these states.

    :raises UnknownState: it cannot.
    """
    raise_all(_states(update.vm_state, update.task_state))


def raise_all(errors: Iterable[InvalidTrackerRequest]) -> None:
    """Raise all errors as one, of their common type if they have one.

    :raises InvalidTrackerRequest: there are any.
    """
    if found := list(errors):
        kinds = {type(error) for error in found}
        kind = kinds.pop() if len(kinds) == 1 else InvalidTrackerRequest
        raise kind(
            "; ".join(error.message for error in found),
            "; ".join(dict.fromkeys(error.remedy for error in found)),
        )


def one_of(name: str, value: str | None, known: Collection[str]) -> Iterator[InvalidTrackerRequest]:
    """Yield an error if the value is none of the known ones."""
    if value not in known:
        yield UnknownState(
            f"{name} = {printable(str(value))}: not known",
            f"{name} is one of {', '.join(sorted(known))}",
        )


def _claim_errors(
    request: InstanceClaim | MoveClaim | DeviceClaim,
) -> Iterator[InvalidTrackerRequest]:
    yield from _ids(request.id, request.node)
    yield from _device_amounts(request.devices)
    if isinstance(request, DeviceClaim):
        yield from _ids(request.instance)
        return
    given = request.instance
    yield from _ids(given.uuid)
    yield from _states(given.vm_state, given.task_state)
    yield from _limits(request.limits)
    yield from _allocations(request.allocations)
    flavors = (
        [] if isinstance(request, MoveClaim) and given.flavor == RECORDED_FLAVOR else [given.flavor]
    )
    if isinstance(request, MoveClaim):
        yield from one_of("type", request.type, TYPES)
        flavors += [request.flavor] if request.flavor is not None else []
        if request.migration is not None:
            yield from _migration(request.migration)
    for flavor in flavors:
        yield from _flavor(flavor)


def _ids(*ids: str) -> Iterator[InvalidTrackerRequest]:
    for given in ids:
        if not is_uuid(given):
            yield InvalidTrackerRequest(
                f"{printable(str(given))} is no uuid",
                "ids of claims, nodes, instances and migrations are uuids",
            )


def _states(
    vm_state: str | Unset, task_state: str | Unset | None
) -> Iterator[InvalidTrackerRequest]:
    if not isinstance(vm_state, Unset):
        yield from one_of("vm_state", vm_state, VM_STATES)
    if task_state is not None and not isinstance(task_state, Unset):
        yield from one_of("task_state", task_state, TASK_STATES)


def _migration(given: Migration) -> Iterator[InvalidTrackerRequest]:
    yield from _ids(given.uuid, given.instance)
    yield from one_of("type", given.type, TYPES)
    yield from one_of("status", given.status, STATUSES)


def _flavor(given: Flavor) -> Iterator[InvalidTrackerRequest]:
    name = f"flavor {printable(given.name)}: "
    yield from _amount(f"{name}vcpus", given.vcpus, MAX_VCPUS, least=1)
    yield from _amount(f"{name}memory_mb", given.memory_mb, MAX_INT)
    yield from _amount(f"{name}root_gb", given.root_gb, MAX_GB)
    yield from _amount(f"{name}ephemeral_gb", given.ephemeral_gb, MAX_GB)
    yield from _amount(f"{name}swap_mb", given.swap_mb, MAX_INT)


def _limits(given: ClaimLimits) -> Iterator[InvalidTrackerRequest]:
    for name in ("memory_mb", "vcpus", "disk_mb"):
        if (value := getattr(given, name)) is not None and value < 0:
            yield InvalidAmount(f"limits: {name} = {value}", "a limit is 0 or more")


def _allocations(given: Resources) -> Iterator[InvalidTrackerRequest]:
    for provider, resources in given.items():
        for name, amount in resources.items():
            yield from _amount(
                f"allocations: {printable(name)} of {printable(provider)}", amount, MAX_INT, least=1
            )


def _device_amounts(given: Iterable[DeviceRequest]) -> Iterator[InvalidTrackerRequest]:
    for request in given:
        yield from _amount(
            f"devices {printable(request.id)}: count", request.count, MAX_DEVICES, least=1
        )


def _amount(name: str, value: int, most: int, least: int = 0) -> Iterator[InvalidTrackerRequest]:
    if not least <= value <= most:
        yield InvalidAmount(f"{name} = {value}", f"an amount from {least} to {most}")
