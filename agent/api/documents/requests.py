"""Conversion of documents that clients send, valid by openapi.yaml, to the tracker's requests."""

from collections.abc import Mapping, Sequence
from typing import Any

from agent.model.claim import Migration
from agent.model.devices import DeviceRequest
from agent.model.instance import Flavor, Instance
from agent.model.names import ConsumerUuid, ProviderUuid, number_of
from agent.numa.fit import Networks
from agent.numa.pair import CellLimits
from agent.tracker.errors import InvalidDevices
from agent.tracker.requests import (
    RECORDED_FLAVOR,
    ClaimLimits,
    DeviceClaim,
    InstanceClaim,
    MoveClaim,
    Resources,
)
from agent.tracker.updates import InstanceUpdate

Document = Mapping[str, Any]

# What a device for a port of this vnic_type has to have. For the other types, any device that does
# not have to be requested by these names.
OF_VNIC = {
    "direct-physical": {"type": "type-PF"},
    "vdpa": {"type": "vdpa"},
    "remote-managed": {"remote_managed": "true"},
}


def instance_claim(asked: Document) -> InstanceClaim:
    """Return the claim for a new guest."""
    return InstanceClaim(
        id=asked["id"],
        node=ProviderUuid(asked["node"]),
        instance=_instance(asked["instance"], _flavor(asked["flavor"])),
        **_conditions(asked),
    )


def move_claim(asked: Document) -> MoveClaim:
    """Return the claim for a guest that moves."""
    instance = asked["instance"]
    current = _flavor(instance["flavor"]) if "flavor" in instance else RECORDED_FLAVOR
    # Only a guest that was built can move.
    described = _instance({"vm_state": "active", **instance}, current)
    return MoveClaim(
        id=asked["id"],
        type=asked["type"],
        node=ProviderUuid(asked["node"]),
        host=asked.get("host"),
        instance=described,
        given_fields=frozenset(instance),
        flavor=_flavor(asked["flavor"]) if "flavor" in asked else None,
        migration=_migration(asked),
        given_migration_fields=_given_migration_fields(asked),
        page_size_kib=asked.get("page_size_kib"),
        **_conditions(asked),
    )


def device_claim(asked: Document) -> DeviceClaim:
    """Return the claim of devices for an existing guest."""
    return DeviceClaim(
        id=asked["id"],
        node=ProviderUuid(asked["node"]),
        instance=ConsumerUuid(asked["instance"]),
        devices=_devices(asked["devices"]),
    )


def instance_update(asked: Document, version: int) -> InstanceUpdate:
    """Return the update of an instance's record. ``version``: the one that the caller has read."""
    return InstanceUpdate(**asked, version=version)


def _conditions(asked: Document) -> dict[str, Any]:
    """Return the fields that claims of guests and of moves have in common."""
    allocations: Resources = {
        ProviderUuid(uuid): dict(entry["resources"])
        for uuid, entry in asked.get("allocations", {}).items()
    }
    networks = asked.get("networks", {})
    return {
        "limits": _limits(asked.get("limits", {})),
        "allocations": allocations,
        "devices": _devices(asked.get("devices", ())),
        "networks": Networks(
            frozenset(networks.get("physnets", ())), networks.get("tunneled", False)
        ),
    }


def _flavor(given: Document) -> Flavor:
    return Flavor(**{**given, "extra_specs": dict(given["extra_specs"])})


def _instance(given: Document, flavor: Flavor) -> Instance:
    return Instance(**{**given, "flavor": flavor})


def _migration(asked: Document) -> Migration | None:
    """Return the record of the migration that the caller has, as far as the document has it."""
    given = asked.get("migration")
    if given is None:
        return None
    migration: Document = {"uuid": given} if isinstance(given, str) else given
    instance = asked["instance"]
    return Migration(
        uuid=ConsumerUuid(migration["uuid"]),
        instance=ConsumerUuid(instance["uuid"]),
        type=asked["type"],
        status=migration.get("status", "accepted"),
        source_compute=migration.get("source_compute", instance.get("host")),
        source_node=migration.get("source_node", instance.get("node")),
        hidden=migration.get("hidden", False),
        cross_cell_move=migration.get("cross_cell_move", False),
    )


def _given_migration_fields(asked: Document) -> frozenset[str]:
    """Return the names of the migration's fields that the document has."""
    given = asked.get("migration", {})
    return frozenset() if isinstance(given, str) else frozenset(given)


def _limits(given: Document) -> ClaimLimits:
    numa = given.get("numa")
    cells = (
        None
        if numa is None
        else CellLimits(float(numa["cpu_allocation_ratio"]), float(numa["ram_allocation_ratio"]))
    )
    return ClaimLimits(given.get("memory_mb"), given.get("vcpus"), given.get("disk_mb"), cells)


def _devices(given: Sequence[Document]) -> tuple[DeviceRequest, ...]:
    return tuple(_device(device) for device in given)


def _device(given: Document) -> DeviceRequest:
    """Return a request for devices. What the port needs is added to each of its specs.

    :raises InvalidDevices: port and spec have the same key, or the number of providers is not that
        of the devices.
    """
    port, providers = _of_port(given.get("port", {})), given.get("providers", ())
    spec, *others = (dict(spec) for spec in (given["spec"], *given.get("alternatives", ())))
    if twice := sorted({name for spec in (spec, *others) for name in spec.keys() & port.keys()}):
        raise InvalidDevices(
            f"devices {given['id']}: port and spec both give {', '.join(twice)}",
            "say it in one of them",
        )
    if providers and len(providers) != given["count"]:
        what = f"{number_of(len(providers), 'provider')} for {number_of(given['count'], 'device')}"
        raise InvalidDevices(f"devices {given['id']}: {what}", "give one provider a device")
    return DeviceRequest(
        given["id"],
        given["count"],
        {**spec, **port},
        alternatives=tuple({**spec, **port} for spec in others),
        policy=given.get("numa_policy"),
        resource_class=given.get("resource_class"),
        providers=tuple(ProviderUuid(provider) for provider in providers),
    )


def _of_port(port: Document) -> dict[str, str]:
    """Return what a port's devices need, as keys of a spec."""
    spec = dict(OF_VNIC.get(port.get("vnic_type", ""), {}))
    if "physical_network" in port:
        spec["physical_network"] = port["physical_network"]
    if port.get("trusted"):
        spec["trusted"] = "true"
    return spec
