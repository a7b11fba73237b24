"""Instance: the record of one guest. Flavor: the resources of one kind of guest. Guest: its
topology, as requested and as placed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

from agent.model.names import ConsumerUuid, ProviderUuid

CpuPolicy = Literal["shared", "dedicated", "mixed"]
ThreadPolicy = Literal["prefer", "require", "isolate"]
EmulatorPolicy = Literal["share", "isolate"]
PciPolicy = Literal["required", "preferred", "legacy", "socket"]
PageWord = Literal["small", "large", "any"]
PageRequest = int | PageWord
"""A size in KiB, or a word."""


@dataclass(frozen=True, slots=True)
class GuestCell:
    """One cell of a guest."""

    shared: frozenset[int]
    """Guest CPUs."""
    dedicated: frozenset[int]
    """Guest CPUs."""
    memory_mib: int
    """MiB."""

    @property
    def cpus(self) -> frozenset[int]:
        """All CPUs of the cell."""
        return self.shared | self.dedicated


@dataclass(frozen=True, slots=True)
class Guest:
    """The request of a guest with a topology."""

    cells: tuple[GuestCell, ...]
    cpu_policy: CpuPolicy = "shared"
    """``shared`` for a guest without a policy."""
    thread_policy: ThreadPolicy | None = None
    emulator_policy: EmulatorPolicy | None = None
    pages: PageRequest | None = None
    """None if any page size will do."""
    pci_policy: PciPolicy | None = None
    realtime: frozenset[int] = frozenset()
    """Guest CPUs."""

    @property
    def pinned(self) -> bool:
        """Whether some CPU of the guest gets a host CPU of its own."""
        return self.cpu_policy != "shared"

    def emulator_cpus(self, cell: int) -> int:
        """Return how many host CPUs the emulator needs on the host cell of guest cell ``cell``: one
        with the first cell if the emulator policy is ``isolate``, else none.
        """
        return int(self.emulator_policy == "isolate" and cell == 0)


@dataclass(frozen=True, slots=True)
class PlacedCell:
    """A guest cell on a host cell."""

    cell: GuestCell
    host_cell: int
    """The id of the host cell."""
    page_size_kib: int | None = None
    """The size of the pages used, in KiB; None if the host reports nothing about pages."""
    pins: Mapping[int, int] = field(default_factory=dict)
    """Guest CPU to host CPU."""
    reserved: frozenset[int] = frozenset()
    """Host CPUs for the emulator."""

    @property
    def pinned_cpus(self) -> frozenset[int]:
        """All host CPUs that no other guest may have."""
        return frozenset(self.pins.values()) | self.reserved


# The most that a guest can have: a larger number is no guest's. The local API has the same bounds.
MOST_VCPUS = 65536
MOST_MEMORY_MIB = 2**31 - 1
MOST_DISK_GIB = 2**20
MOST_SPECS = 500
LONGEST_NAME = 255
LONGEST_SPEC = 4096


@dataclass(frozen=True, slots=True)
class Amounts:
    """Amounts of memory, CPUs and disk."""

    memory_mb: int = 0
    """MiB."""
    vcpus: int = 0
    """Whole CPUs."""
    disk_mb: int = 0
    """MiB."""

    def __add__(self, other: Self) -> Self:
        return type(self)(
            self.memory_mb + other.memory_mb, self.vcpus + other.vcpus, self.disk_mb + other.disk_mb
        )

    def __sub__(self, other: Self) -> Self:
        return type(self)(
            self.memory_mb - other.memory_mb, self.vcpus - other.vcpus, self.disk_mb - other.disk_mb
        )


NOTHING = Amounts()


@dataclass(frozen=True, slots=True)
class Flavor:
    """The resources and extra specs of a guest."""

    id: str
    """Identifies the flavor."""
    name: str
    vcpus: int
    memory_mb: int
    """MiB."""
    root_gb: int = 0
    """GiB."""
    ephemeral_gb: int = 0
    """GiB."""
    swap_mb: int = 0
    """MiB."""
    extra_specs: Mapping[str, str] = field(default_factory=dict)

    def amounts(self, *, volume_backed: bool) -> Amounts:
        """Return what a guest uses of its host; the root disk of a volume-backed guest is not on
        the host.
        """
        root_gb = 0 if volume_backed else self.root_gb
        return Amounts(
            self.memory_mb, self.vcpus, (root_gb + self.ephemeral_gb) * 1024 + self.swap_mb
        )


VmState = Literal[
    "building",
    "active",
    "paused",
    "suspended",
    "stopped",
    "rescued",
    "resized",
    "soft-delete",
    "deleted",
    "error",
    "shelved",
    "shelved_offloaded",
]
TaskState = Literal[
    "scheduling",
    "block_device_mapping",
    "networking",
    "spawning",
    "image_snapshot",
    "image_snapshot_pending",
    "image_pending_upload",
    "image_uploading",
    "image_backup",
    "updating_password",
    "resize_prep",
    "resize_migrating",
    "resize_migrated",
    "resize_finish",
    "resize_reverting",
    "resize_confirming",
    "rebooting",
    "reboot_pending",
    "reboot_started",
    "rebooting_hard",
    "reboot_pending_hard",
    "reboot_started_hard",
    "pausing",
    "unpausing",
    "suspending",
    "resuming",
    "powering-off",
    "powering-on",
    "rescuing",
    "unrescuing",
    "rebuilding",
    "rebuild_block_device_mapping",
    "rebuild_spawning",
    "migrating",
    "deleting",
    "soft-deleting",
    "restoring",
    "shelving",
    "shelving_image_pending_upload",
    "shelving_image_uploading",
    "shelving_offloading",
    "unshelving",
]

# The guest is off its host for good, or while it is shelved.
REMOVED: frozenset[VmState] = frozenset({"deleted", "shelved_offloaded"})
# There is a guest, running or not.
BUILT: frozenset[VmState] = frozenset(
    {"active", "paused", "suspended", "stopped", "rescued", "resized", "soft-delete", "shelved"}
)
RESIZING: frozenset[TaskState] = frozenset(
    {
        "resize_prep",
        "resize_migrating",
        "resize_migrated",
        "resize_finish",
        "resize_reverting",
        "resize_confirming",
    }
)
REBUILDING: frozenset[TaskState] = frozenset(
    {"rebuilding", "rebuild_block_device_mapping", "rebuild_spawning"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """The record of one guest."""

    uuid: ConsumerUuid
    project_id: str
    user_id: str
    flavor: Flavor
    """The flavor that the guest has."""
    os_type: str | None = None
    host: str | None = None
    """The host that owns the guest now; None while no host does."""
    node: ProviderUuid | None = None
    """The node that owns the guest now; None while no host does."""
    launched_on: str | None = None
    """The host of its last build."""
    vm_state: VmState = "building"
    task_state: TaskState | None = None
    old_flavor: Flavor | None = None
    """During a resize, the flavor that a revert restores."""
    new_flavor: Flavor | None = None
    """During a resize, the flavor that the guest is to get."""
    image_properties: Mapping[str, str] = field(default_factory=dict)
    volume_backed: bool = False
    hidden: bool = False
    """Whether this is the copy in a move between cells of the cloud that does not count."""
    deleted: bool = False
    created_at: float = 0.0
    """Seconds since the epoch."""
    updated_at: float = 0.0
    """Seconds since the epoch."""
    version: int = 0
    """See :mod:`agent.model.node_records`."""

    @property
    def removed(self) -> bool:
        """Whether the guest uses nothing of its host any more. A shelved guest that is being built
        again does.
        """
        return self.deleted or (
            self.vm_state in REMOVED
            and not (self.vm_state == "shelved_offloaded" and self.task_state == "spawning")
        )

    @property
    def moving(self) -> bool:
        """Whether the guest is between two places: a resize or migration not yet confirmed, an
        evacuation, a live migration.
        """
        return (
            self.vm_state == "resized"
            or self.task_state in RESIZING | REBUILDING
            or self.task_state == "migrating"
        )
