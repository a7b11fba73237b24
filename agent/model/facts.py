"""Host facts: one immutable snapshot of what a driver found on a node, with the guests that the
hypervisor shows, independent of the records.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from operator import attrgetter
from typing import Any, Generic, Literal, Self, TypeVar

from agent.model.devices import AssignableUnit, EncryptionFacts, MdevParent, PciAddress, PciDevice
from agent.model.instance import Flavor, PlacedCell
from agent.model.names import ConsumerUuid, name_first
from agent.model.topology import Topology

DomainState = Literal["running", "paused", "stopped"]


@dataclass(frozen=True, slots=True)
class Origin:
    """The flavor and owner of a guest, as its creator wrote them beside the guest."""

    flavor: Flavor
    project_id: str
    user_id: str
    volume_backed: bool = False
    specs_known: bool = True
    """False: the creator did not write the flavor's extra specs down, as older versions of nova."""


@dataclass(frozen=True, slots=True)
class Domain:
    """One guest. Its mediated devices name the guest as their owner."""

    uuid: ConsumerUuid
    name: str
    memory_mib: int
    """MiB of the host's memory, with all devices that add some; without persistent memory."""
    vcpus: int | None = None
    """None if not known."""
    state: DomainState = "running"
    cells: tuple[PlacedCell, ...] = ()
    """The host cells that the guest's cells are bound to, with the host CPUs that it is pinned to;
    empty for a guest that floats.
    """
    devices: tuple[PciAddress, ...] = ()
    """The host devices that the guest has."""
    units: tuple[AssignableUnit, ...] = ()
    """Those of the node's units that the guest has."""
    image_properties: Mapping[str, str] = field(default_factory=dict)
    """The image properties that ask for what else the guest has, such as ``hw_tpm_version``."""
    origin: Origin | None = None
    """None if it was not written down, or cannot be read."""
    unreadable_origin: str | None = None
    """Why the origin that was written down cannot be read; the guest is counted as it is shown."""

    @property
    def pinned(self) -> bool:
        """Whether some of its CPUs have host CPUs of their own."""
        return any(cell.pins for cell in self.cells)


T = TypeVar("T")
Local = TypeVar("Local", PciDevice, MdevParent)

SHOWN = 3


@dataclass(frozen=True, slots=True)
class PartialRead(Generic[T]):
    """A value that was read with its faults."""

    value: T
    faults: tuple[str, ...] = ()
    """One line for each thing that was set aside, naming it; empty when everything was read."""


def summarize_faults(faults: tuple[str, ...]) -> str:
    """Return the faults as one line: the first few of them, because a broken bus has hundreds, and
    how many more there are.
    """
    return name_first(faults, SHOWN, "; ")


Section = Literal[
    "cpu", "memory", "disk", "numa", "pci", "mdev", "encryption", "domains", "units", "traits"
]


@dataclass(frozen=True, slots=True)
class CpuFacts:
    """The CPUs of a node."""

    online: frozenset[int]
    """The CPUs that run now, as the host numbers them."""
    architecture: str = "x86_64"
    model: str = ""
    vendor: str = ""
    features: frozenset[str] = frozenset()
    """Kernel or libvirt flag names."""
    sleeping: frozenset[int] = frozenset()
    """Dedicated CPUs that are offline only while no guest has them, so that they are counted."""

    @property
    def pinnable(self) -> frozenset[int]:
        """The CPUs that guests can be pinned to."""
        return self.online | self.sleeping


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What a node has.

    A section is ``None`` if the node does not have it at all (a bare-metal node has no ``cpu``). An
    incomplete section is never the same as an empty one.
    """

    name: str
    taken_at: float
    """Seconds since the epoch."""
    hypervisor_type: str
    hypervisor_version: int = 0
    cpu: CpuFacts | None = None
    memory_mib: int | None = None
    """MiB, rounded down; 0 where a node with CPUs has none."""
    disk_gib: int | None = None
    """GiB, rounded down; 0 where a node with CPUs has none."""
    numa: Topology | None = None
    pci: tuple[PciDevice, ...] | None = None
    mdev: tuple[MdevParent, ...] | None = None
    encryption: EncryptionFacts | None = None
    domains: tuple[Domain, ...] | None = None
    units: tuple[AssignableUnit, ...] | None = None
    traits: Mapping[str, bool] | None = None
    """Standard traits of the hardware and of the hypervisor's abilities: true is set on the root,
    false is removed, others are left alone.
    """
    exclusive: bool = False
    """Whether one consumer has all of the node at a time, whatever it asked for (a bare-metal
    node).
    """
    disk_shared: bool = False
    """Whether other clients fill that disk too, so that its size changes with their data."""
    image_cache_gib: int = 0
    """GiB of the disk that cached images take, rounded up."""
    incomplete: Mapping[Section, str] = field(default_factory=dict)
    """Each section that could not be read fully, with the reason: that part of the tree keeps its
    last good values, and the node is degraded.
    """

    @property
    def forgotten(self) -> tuple[str, ...]:
        """The sections that every node with CPUs has, and that these facts neither report nor name
        as incomplete: the driver forgot them, because a node does not lose them.
        """
        said = (("memory", "memory_mib", self.memory_mib), ("disk", "disk_gib", self.disk_gib))
        return tuple(
            name
            for section, name, value in said
            if self.cpu is not None and section not in self.incomplete and value is None
        )

    def with_disjoint_cells(self) -> Self:
        """Return the facts with each CPU in one cell, and with everything that is on a NUMA node on
        the cell that it is counted as; see :meth:`Topology.with_disjoint_cells`.
        """
        numa = self.numa.with_disjoint_cells() if self.numa is not None else None
        if numa is None or not numa.shared_by:
            return self
        cell_of = numa.cell_of

        def moved(device: Local) -> Local:
            node = device.numa_node
            return replace(device, numa_node=None if node is None else cell_of(node))

        def guest_moved(guest: Domain) -> Domain:
            cells = (replace(one, host_cell=cell_of(one.host_cell)) for one in guest.cells)
            return replace(guest, cells=tuple(cells))

        return replace(
            self,
            numa=numa,
            pci=self.pci and tuple(map(moved, self.pci)),
            mdev=self.mdev and tuple(map(moved, self.mdev)),
            domains=self.domains and tuple(map(guest_moved, self.domains)),
        )

    def same_but_for_time(self, other: "HostFacts") -> bool:
        """Return whether ``other`` says the same of the node, whenever it was taken."""
        # Any, because mypy takes a class with __hash__ for one that is not hashable itself.
        kind: Any = type(self)
        values = _all_but_time(kind)
        return kind is type(other) and values(self) == values(other)

    def disk_gib_after(self, last: int | None) -> int | None:
        """Return the disk in GiB. ``last``, the value that was reported before, is kept while a
        shared disk is not more than 1 % away from it.
        """
        if (
            not (self.disk_shared and self.disk_gib and last)
            or abs(self.disk_gib - last) * 100 > last
        ):
            return self.disk_gib
        return last

    @property
    def known_devices(self) -> tuple[PciDevice, ...] | None:
        """The PCI devices; None if they were not read fully."""
        return self.pci or () if self.complete("pci") else None

    def complete(self, section: Section) -> bool:
        """Return whether ``section`` was read fully."""
        return section not in self.incomplete


@cache
def _all_but_time(kind: type) -> Callable[[HostFacts], tuple[object, ...]]:
    """Return a function from facts of this type to all their values but the time. Found once a
    type, because facts are compared for each node in each pass.
    """
    return attrgetter(*(one.name for one in fields(kind) if one.name != "taken_at"))
