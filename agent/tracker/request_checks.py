"""Checks of requests that no node could grant: states, amounts or ids that do not exist. Pure; all
faults of a request are reported at once.

The local API checks its requests before; these checks are for callers in the process, and keep
invalid values out of the records.
"""

from collections.abc import Collection, Iterable, Iterator

from agent.model.claim import STATUSES, TYPES, Migration
from agent.model.devices import DeviceRequest
from agent.model.instance import TASK_STATES, VM_STATES, Flavor
from agent.model.inventory import MAX_INT
from agent.model.names import is_uuid, printable
from agent.tracker.errors import InvalidAmount, InvalidTrackerRequest, UnknownState
from agent.tracker.requests import (
    RECORDED_FLAVOR,
    ClaimLimits,
    DeviceClaim,
    InstanceClaim,
    MoveClaim,
    Resources,
)
from agent.tracker.updates import InstanceUpdate, Unset

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
