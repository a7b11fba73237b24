"""What clients send: the parts of requests, as msgspec checks them and openapi.yaml describes them,
and the tracker's requests that they become.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field, structs

from agent.api.body import END
from agent.model.devices import DeviceRequest
from agent.model.instance import Flavor, Instance, PciPolicy, TaskState, VmState
from agent.model.names import ConsumerUuid, ProviderUuid, number_of
from agent.model.node_records import Migration, MigrationStatus, MigrationType
from agent.numa.fit import Networks
from agent.numa.pair import CellLimits
from agent.tracker.errors import InvalidDevices
from agent.tracker.stored_state import (
    RECORDED_FLAVOR,
    ClaimLimits,
    DeviceClaim,
    InstanceClaim,
    InstanceUpdate,
    MoveClaim,
    Resources,
)

MOST = 2**31 - 1
MOST_EXACT = 2**53 - 1
MOST_GIB = 2**20
# More than any host has; the limit exists because placing each CPU costs time.
MOST_VCPUS = 65536
UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
PRINTABLE = rf"^[^\x00-\x1f\x7f]*{END}"

Uuid = Annotated[str, Meta(pattern=f"^{UUID}{END}", max_length=36)]
Name = Annotated[str, Meta(pattern=PRINTABLE, min_length=1, max_length=255)]
ProviderName = Annotated[str, Meta(pattern=PRINTABLE, min_length=1, max_length=200)]
OptionalText = Annotated[str, Meta(pattern=PRINTABLE, max_length=255)] | None
Text = Annotated[str, Meta(pattern=rf"^[^\x00-\x08\x0b-\x1f\x7f]*{END}", max_length=4096)]
Texts = Annotated[dict[Name, Text], Meta(max_length=500)]
ResourceClass = Annotated[str, Meta(pattern=f"^[A-Z0-9_]+{END}", max_length=255)]
Amount = Annotated[int, Meta(ge=0, le=MOST)]
Gib = Annotated[int, Meta(ge=0, le=MOST_GIB)]
Limit = Annotated[int, Meta(ge=0, le=MOST_EXACT)]
Ratio = Annotated[float, Meta(gt=0, le=1_000_000)]
Nodes = Annotated[
    list[ProviderName],
    Meta(min_length=1, max_length=10_000, description="Names or uuids; all nodes unless given"),
]


class RequestPart(Struct, forbid_unknown_fields=True):
    """A part of a request; a field that it does not have is UNSET."""


class NewFlavor(RequestPart):
    """The resources of a guest."""

    id: Name
    name: Name
    vcpus: Annotated[int, Meta(ge=1, le=MOST_VCPUS)]
    memory_mb: Amount
    root_gb: Gib
    ephemeral_gb: Gib
    swap_mb: Amount
    extra_specs: Texts


class NewInstance(RequestPart):
    """A guest."""

    uuid: Uuid
    project_id: Name
    user_id: Name
    os_type: OptionalText | UnsetType = UNSET
    host: Annotated[OptionalText | UnsetType, Meta(description="Who has it now")] = UNSET
    node: Annotated[Uuid | UnsetType | None, Meta(description="On which node")] = UNSET
    vm_state: VmState | UnsetType = UNSET
    task_state: TaskState | UnsetType | None = UNSET
    image_properties: Texts | UnsetType = UNSET
    volume_backed: bool | UnsetType = UNSET
    hidden: bool | UnsetType = UNSET


class MovingInstance(NewInstance):
    """A guest that moves. ``flavor``: the one that it has; needed where the records do not know the
    guest.
    """

    flavor: NewFlavor | UnsetType = UNSET


class CellRatios(RequestPart):
    """Of the guest's cells."""

    cpu_allocation_ratio: Ratio
    ram_allocation_ratio: Ratio


class Limits(RequestPart):
    """The most that may be used of the node in all; what is not given is not limited."""

    memory_mb: Limit | UnsetType = UNSET
    vcpus: Limit | UnsetType = UNSET
    disk_mb: Limit | UnsetType = UNSET
    numa: CellRatios | UnsetType = UNSET


class AllocatedResources(RequestPart):
    """What the scheduler allocated of one provider."""

    resources: Annotated[
        dict[ResourceClass, Annotated[int, Meta(ge=1, le=MOST)]],
        Meta(min_length=1, max_length=1000),
    ]


Allocations = Annotated[
    dict[Uuid, AllocatedResources],
    Meta(max_length=1000, description="What the scheduler allocated, by provider"),
]


class GuestNetworks(RequestPart):
    """The networks that the guest's ports are on. A guest with cells has one on a cell that each of
    them is local to, if any is.
    """

    physnets: Annotated[list[Name], Meta(max_length=1000)] = []
    tunneled: Annotated[bool, Meta(description="Whether one of them is tunneled")] = False


class DevicePort(RequestPart):
    """What the port that the devices are for needs of them, beside ``spec`` and each of the
    alternatives.
    """

    vnic_type: Annotated[
        Literal["direct", "macvtap", "direct-physical", "vdpa", "remote-managed"] | UnsetType,
        Meta(
            description="direct and macvtap: a virtual function or a plain device; "
            "direct-physical: a PF"
        ),
    ] = UNSET
    physical_network: Name | UnsetType = UNSET
    trusted: Annotated[
        bool | UnsetType,
        Meta(description="Whether it has to be of those that the operator trusts"),
    ] = UNSET

    def __post_init__(self) -> None:
        """Check that the port needs anything.

        :raises ValueError: it does not.
        """
        _check_given(self)


class NewDevices(RequestPart):
    """A request for devices. ``id`` is shown as ``request`` of the devices that it got; for those
    of a port, the port's own uuid serves well.
    """

    id: Uuid
    count: Annotated[int, Meta(ge=1, le=1024)]
    spec: Annotated[
        Texts,
        Meta(
            description="What each of the devices has: vendor_id, product_id, type, address, or "
            "tags of the operator's"
        ),
    ]
    alternatives: Annotated[
        list[Texts],
        Meta(
            max_length=100,
            description="Other things to have that will do as well, as of an alias with several "
            "entries",
        ),
    ] = []
    numa_policy: Annotated[
        PciPolicy | UnsetType,
        Meta(
            description="How near to the guest's cells; unless given, as its flavor and image say, "
            "else legacy"
        ),
    ] = UNSET
    resource_class: Annotated[
        ResourceClass | UnsetType,
        Meta(
            description="What counts the devices in Placement, so that the providers that "
            "`allocations` name for it are those of the devices"
        ),
    ] = UNSET
    providers: Annotated[
        Annotated[list[Uuid], Meta(min_length=1, max_length=1024)] | UnsetType,
        Meta(
            description="The providers that the scheduler took the devices from, one entry a device"
        ),
    ] = UNSET
    port: Annotated[DevicePort | UnsetType, Meta(extra_json_schema={"minProperties": 1})] = UNSET


class NewClaim(RequestPart):
    """What a new guest claims of a node."""

    id: Uuid
    node: Uuid
    instance: NewInstance
    flavor: NewFlavor
    limits: Limits = field(default_factory=Limits)
    allocations: Allocations = {}
    devices: Annotated[list[NewDevices], Meta(max_length=100)] = []
    networks: GuestNetworks = field(default_factory=GuestNetworks)


class NewMigration(RequestPart):
    """The record of a migration that the caller made."""

    uuid: Uuid
    source_compute: Name | UnsetType = UNSET
    source_node: Uuid | UnsetType = UNSET
    status: MigrationStatus | UnsetType = UNSET
    hidden: Annotated[
        bool | UnsetType,
        Meta(description="The twin of a move between cells of the cloud that is not to be listed"),
    ] = UNSET
    cross_cell_move: bool | UnsetType = UNSET


class NewMove(RequestPart):
    """What a guest that moves, or is resized, claims of a node."""

    id: Uuid
    type: MigrationType
    node: Annotated[Uuid, Meta(description="The destination")]
    instance: Annotated[
        MovingInstance,
        Meta(
            description="What is said of it has to agree with its record; a destination that has "
            "none needs its host, node and flavor"
        ),
    ]
    host: Annotated[
        Name | UnsetType,
        Meta(
            description="The name of the destination's host; needed by a source that has a store "
            "of its own"
        ),
    ] = UNSET
    flavor: Annotated[NewFlavor | UnsetType, Meta(description="The new one of a resize")] = UNSET
    migration: Annotated[
        Uuid | NewMigration | UnsetType,
        Meta(
            description="The record that the caller made, or its uuid; where there is one already, "
            "what is said of it has to agree"
        ),
    ] = UNSET
    page_size_kib: Annotated[
        Annotated[int, Meta(ge=1, le=MOST)] | UnsetType,
        Meta(
            description="In a live migration the size of the pages that a guest with cells runs "
            "on, as the cells of its claim at the source show it; needed by a destination with a "
            "store of its own if the flavor or the image leaves the size to the host (large, any)"
        ),
    ] = UNSET
    limits: Limits = field(default_factory=Limits)
    allocations: Allocations = {}
    devices: Annotated[list[NewDevices], Meta(max_length=100)] = []
    networks: GuestNetworks = field(default_factory=GuestNetworks)

    def __post_init__(self) -> None:
        """Check that the fields fit the type of the move.

        :raises ValueError: they do not.
        """
        if (self.flavor is not UNSET) != (self.type == "resize"):
            raise ValueError("a resize has a flavor, and no other move has one")
        if self.page_size_kib is not UNSET and self.type != "live-migration":
            raise ValueError("page_size_kib is for live migrations alone")


MOVE_RULES = [
    {
        "if": {"properties": {"type": {"const": "resize"}}, "required": ["type"]},
        "then": {"required": ["flavor"]},
        "else": {"properties": {"flavor": {"not": {}}}},
    },
    {
        "if": {"properties": {"type": {"const": "live-migration"}}, "required": ["type"]},
        "else": {"properties": {"page_size_kib": {"not": {}}}},
    },
]
Move = Annotated[NewMove, Meta(extra_json_schema={"allOf": MOVE_RULES})]


class NewDeviceClaim(RequestPart):
    """Devices for a guest that is there."""

    id: Uuid
    node: Uuid
    instance: Uuid
    devices: Annotated[list[NewDevices], Meta(min_length=1, max_length=100)]


class InstanceChanges(RequestPart):
    """What has changed of a guest."""

    vm_state: VmState | UnsetType = UNSET
    task_state: TaskState | UnsetType | None = UNSET
    deleted: bool | UnsetType = UNSET
    hidden: Annotated[
        bool | UnsetType,
        Meta(
            description="Whether it is the twin of a move between cells of the cloud that does not "
            "count"
        ),
    ] = UNSET
    image_properties: Annotated[
        Texts | UnsetType,
        Meta(
            description="Of the image that the guest is rebuilt in place with; they have to ask "
            "for the cells that it has"
        ),
    ] = UNSET

    def __post_init__(self) -> None:
        """Check that anything has changed.

        :raises ValueError: nothing has.
        """
        _check_given(self)


Changes = Annotated[InstanceChanges, Meta(extra_json_schema={"minProperties": 1})]


class BuildOutcome(RequestPart):
    """The end of a build."""

    result: Literal["failed", "succeeded"]


class NewAudit(RequestPart):
    """What is to be audited."""

    nodes: Nodes | UnsetType = UNSET
    dry_run: Annotated[bool, Meta(description="Plan only and write nothing")] = False


class ImportOrder(RequestPart):
    """The nodes whose guests are to be imported."""

    nodes: Nodes | UnsetType = UNSET
    dry_run: Annotated[bool, Meta(description="Show what would be imported and write nothing")] = (
        False
    )
    again: Annotated[
        list[Uuid],
        Meta(
            max_length=10_000,
            description="Guests that are imported although their records say that they are deleted "
            "or elsewhere",
        ),
    ] = []


class Progress(RequestPart):
    """The status that a move has reached."""

    status: Literal[
        "queued",
        "accepted",
        "pre-migrating",
        "preparing",
        "migrating",
        "running",
        "post-migrating",
        "confirming",
        "reverting",
    ]


class DroppedHalf(RequestPart):
    """A half of a move."""

    half: Annotated[
        Literal["old", "new"],
        Meta(description="What it has at the source or is promised at the destination"),
    ]


class CleaningReport(RequestPart):
    """A device that was cleaned."""

    address: Annotated[
        str,
        Meta(
            pattern=f"^[0-9a-fA-F]{{4,8}}:[0-9a-fA-F]{{2}}:[0-9a-fA-F]{{2}}[.][0-7]{END}",
            max_length=16,
        ),
    ]
    node: Annotated[
        ProviderName | UnsetType,
        Meta(
            description="Its name or uuid; needed where several nodes have a device of that address"
        ),
    ] = UNSET


def given(part: Struct) -> dict[str, Any]:
    """Return the fields that a part of a request has."""
    return {name: value for name, value in structs.asdict(part).items() if value is not UNSET}


def _check_given(part: Struct) -> None:
    if not given(part):
        raise ValueError("it has no field")


# --- the tracker's requests -----------------------------------------------------------------------

# What a device for a port of this vnic_type has to have. For the other types, any device that does
# not have to be requested by these names.
OF_VNIC = {
    "direct-physical": {"type": "type-PF"},
    "vdpa": {"type": "vdpa"},
    "remote-managed": {"remote_managed": "true"},
}


def instance_claim(asked: NewClaim) -> InstanceClaim:
    """Return the claim for a new guest."""
    return InstanceClaim(
        id=asked.id,
        node=ProviderUuid(asked.node),
        instance=_instance(asked.instance, _flavor(asked.flavor)),
        **_conditions(asked),
    )


def move_claim(asked: NewMove) -> MoveClaim:
    """Return the claim for a guest that moves."""
    instance, migration = asked.instance, asked.migration
    current = RECORDED_FLAVOR if instance.flavor is UNSET else _flavor(instance.flavor)
    return MoveClaim(
        id=asked.id,
        type=asked.type,
        node=ProviderUuid(asked.node),
        host=None if asked.host is UNSET else asked.host,
        # Only a guest that was built can move.
        instance=_instance(instance, current, vm_state="active"),
        given_fields=frozenset(given(instance)),
        flavor=None if asked.flavor is UNSET else _flavor(asked.flavor),
        migration=_migration(asked),
        given_migration_fields=frozenset(
            given(migration) if isinstance(migration, NewMigration) else ()
        ),
        page_size_kib=None if asked.page_size_kib is UNSET else asked.page_size_kib,
        **_conditions(asked),
    )


def device_claim(asked: NewDeviceClaim) -> DeviceClaim:
    """Return the claim of devices for an existing guest."""
    return DeviceClaim(
        id=asked.id,
        node=ProviderUuid(asked.node),
        instance=ConsumerUuid(asked.instance),
        devices=_devices(asked.devices),
    )


def instance_update(asked: InstanceChanges, version: int) -> InstanceUpdate:
    """Return the update of an instance's record. ``version``: the one that the caller has read."""
    return InstanceUpdate(**given(asked), version=version)


def _conditions(asked: NewClaim | NewMove) -> dict[str, Any]:
    """Return the fields that claims of guests and of moves have in common."""
    allocations: Resources = {
        ProviderUuid(uuid): dict(entry.resources) for uuid, entry in asked.allocations.items()
    }
    return {
        "limits": _limits(asked.limits),
        "allocations": allocations,
        "devices": _devices(asked.devices),
        "networks": Networks(frozenset(asked.networks.physnets), asked.networks.tunneled),
    }


def _flavor(new: NewFlavor) -> Flavor:
    return Flavor(**structs.asdict(new))


def _instance(new: NewInstance, flavor: Flavor, **unless_given: Any) -> Instance:
    return Instance(**{**unless_given, **given(new), "flavor": flavor})


def _migration(asked: NewMove) -> Migration | None:
    """Return the record of the migration that the caller has, as far as the request has it."""
    if asked.migration is UNSET:
        return None
    known: Mapping[str, Any] = (
        {"uuid": asked.migration} if isinstance(asked.migration, str) else given(asked.migration)
    )
    instance = given(asked.instance)
    return Migration(
        uuid=ConsumerUuid(known["uuid"]),
        instance=ConsumerUuid(asked.instance.uuid),
        type=asked.type,
        status=known.get("status", "accepted"),
        source_compute=known.get("source_compute", instance.get("host")),
        source_node=known.get("source_node", instance.get("node")),
        hidden=known.get("hidden", False),
        cross_cell_move=known.get("cross_cell_move", False),
    )


def _limits(limits: Limits) -> ClaimLimits:
    known = given(limits)
    numa = (
        CellLimits(limits.numa.cpu_allocation_ratio, limits.numa.ram_allocation_ratio)
        if isinstance(limits.numa, CellRatios)
        else None
    )
    return ClaimLimits(known.get("memory_mb"), known.get("vcpus"), known.get("disk_mb"), numa)


def _devices(wanted: Sequence[NewDevices]) -> tuple[DeviceRequest, ...]:
    return tuple(_device(one) for one in wanted)


def _device(wanted: NewDevices) -> DeviceRequest:
    """Return a request for devices. What the port needs is added to each of its specs.

    :raises InvalidDevices: port and spec have the same key, or the number of providers is not that
        of the devices.
    """
    known = given(wanted)
    port, providers = _of_port(wanted.port), known.get("providers", ())
    if twice := sorted(
        {name for spec in (wanted.spec, *wanted.alternatives) for name in spec.keys() & port.keys()}
    ):
        raise InvalidDevices(
            f"devices {wanted.id}: port and spec both give {', '.join(twice)}",
            "say it in one of them",
        )
    if providers and len(providers) != wanted.count:
        what = f"{number_of(len(providers), 'provider')} for {number_of(wanted.count, 'device')}"
        raise InvalidDevices(f"devices {wanted.id}: {what}", "give one provider a device")
    return DeviceRequest(
        wanted.id,
        wanted.count,
        {**wanted.spec, **port},
        alternatives=tuple({**spec, **port} for spec in wanted.alternatives),
        policy=known.get("numa_policy"),
        resource_class=known.get("resource_class"),
        providers=tuple(ProviderUuid(provider) for provider in providers),
    )


def _of_port(port: DevicePort | UnsetType) -> dict[str, str]:
    """Return what a port's devices need, as keys of a spec."""
    known = {} if port is UNSET else given(port)
    spec = dict(OF_VNIC.get(known.get("vnic_type", ""), {}))
    if "physical_network" in known:
        spec["physical_network"] = known["physical_network"]
    if known.get("trusted"):
        spec["trusted"] = "true"
    return spec
