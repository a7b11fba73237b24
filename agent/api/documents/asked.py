"""What clients ask of the tracker: documents, valid by openapi.yaml, as the tracker's own requests."""

from collections.abc import Mapping, Sequence
from typing import Any

from agent.model.device_request import DeviceRequest
from agent.model.flavor import Flavor
from agent.model.instance import Instance
from agent.model.migration import Migration
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.numa.pair import Limits as CellLimits
from agent.tracker.requests import UNTOLD, DeviceClaim, InstanceClaim, Limits, MoveClaim, Resources
from agent.tracker.updates import InstanceUpdate

Document = Mapping[str, Any]


def instance_claim(asked: Document) -> InstanceClaim:
    """Room for a new guest."""
    return InstanceClaim(
        id=asked["id"], node=ProviderUuid(asked["node"]), instance=_instance(asked["instance"], _flavor(asked["flavor"])), **_conditions(asked)
    )


def move_claim(asked: Document) -> MoveClaim:
    """Room for a guest that moves."""
    instance = asked["instance"]
    current = _flavor(instance["flavor"]) if "flavor" in instance else UNTOLD
    return MoveClaim(
        id=asked["id"], type=asked["type"], node=ProviderUuid(asked["node"]), instance=_instance(instance, current),
        flavor=_flavor(asked["flavor"]) if "flavor" in asked else None, migration=_migration(asked), **_conditions(asked),
    )  # fmt: skip


def device_claim(asked: Document) -> DeviceClaim:
    """Devices for a guest that is there."""
    return DeviceClaim(
        id=asked["id"], node=ProviderUuid(asked["node"]), instance=ConsumerUuid(asked["instance"]), devices=_devices(asked["devices"])
    )


def instance_update(asked: Document, version: int) -> InstanceUpdate:
    """What has become of a guest, by somebody who has seen ``version`` of its record."""
    return InstanceUpdate(**asked, version=version)


def _conditions(asked: Document) -> dict[str, Any]:
    """What a claim of a guest and one of a move have in common."""
    allocations: Resources = {ProviderUuid(uuid): dict(entry["resources"]) for uuid, entry in asked.get("allocations", {}).items()}
    return {"limits": _limits(asked.get("limits", {})), "allocations": allocations, "devices": _devices(asked.get("devices", ()))}


def _flavor(given: Document) -> Flavor:
    return Flavor(**{**given, "extra_specs": dict(given["extra_specs"])})


def _instance(given: Document, flavor: Flavor) -> Instance:
    return Instance(**{**given, "flavor": flavor})


def _migration(asked: Document) -> Migration | None:
    """The record that the caller made, as far as it is told."""
    given = asked.get("migration")
    if given is None:
        return None
    told: Document = {"uuid": given} if isinstance(given, str) else given
    instance = asked["instance"]
    return Migration(
        uuid=ConsumerUuid(told["uuid"]), instance=ConsumerUuid(instance["uuid"]), type=asked["type"], status=told.get("status", "accepted"),
        source_compute=told.get("source_compute", instance.get("host")), source_node=told.get("source_node", instance.get("node")),
    )  # fmt: skip


def _limits(given: Document) -> Limits:
    numa = given.get("numa")
    cells = None if numa is None else CellLimits(float(numa["cpu_allocation_ratio"]), float(numa["ram_allocation_ratio"]))
    return Limits(given.get("memory_mb"), given.get("vcpus"), given.get("disk_mb"), cells)


def _devices(given: Sequence[Document]) -> tuple[DeviceRequest, ...]:
    return tuple(DeviceRequest(one["id"], one["count"], dict(one["spec"])) for one in given)
