"""Host facts: one immutable snapshot of what a driver found on a node, with its NUMA topology and
the guests that the hypervisor shows, independent of the records; and CPU lists in the format of
operators and the kernel: ``0-7,^3,10``.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any, Generic, Literal, Self, TypeVar

from agent.model.devices import AssignableUnit, EncryptionFacts, MdevParent, PciAddress, PciDevice
from agent.model.instance import Flavor, PlacedCell
from agent.model.names import ConsumerUuid, name_first


@dataclass(frozen=True, slots=True)
class PagePool:
    """Pages of one size on one cell."""

    size_kib: int
    """KiB."""
    total: int
    """Pages."""
    free: int | None = None
    """Pages; None if not known."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One NUMA node. Ids may have gaps; a cell may have memory and no CPU (GPU or HBM memory), or
    the reverse.
    """

    id: int
    cpus: frozenset[int]
    """All CPUs of the cell, offline ones included."""
    memory_mib: int
    """MiB, rounded down."""
    pages: tuple[PagePool, ...] = ()
    """The huge pages; ordinary pages are the rest of the memory."""
    distances: Mapping[int, int] = field(default_factory=dict)
    """Cell id to distance (10 is local)."""
    siblings: tuple[frozenset[int], ...] = ()
    """The online hardware threads of each core, disjoint."""
    sockets: frozenset[int] = frozenset()
    """The packages of its online CPUs."""

    @property
    def socket(self) -> int | None:
        """The package of the cell; ``None`` if its CPUs belong to several packages or it has
        none.
        """
        return next(iter(self.sockets)) if len(self.sockets) == 1 else None


@dataclass(frozen=True, slots=True)
class Topology:
    """All cells of a host, in order of their ids."""

    cells: tuple[Cell, ...]
    shared_by: tuple[int, ...] = ()
    """The ids of the NUMA nodes that share CPUs, so that the host has one cell, 0, instead of them;
    empty where every NUMA node is a cell.
    """

    def cell_of(self, numa_node: int) -> int:
        """Return the id of the cell that the NUMA node is counted as."""
        return 0 if self.shared_by else numa_node

    def with_disjoint_cells(self) -> Self:
        """Return the topology with each CPU in one cell: where NUMA nodes share CPUs, as emulated
        ones do (``numa=fake``), all of the host is cell 0.
        """
        cells = self.cells
        if sum(len(cell.cpus) for cell in cells) == len(_union(cell.cpus for cell in cells)):
            return self
        whole = Cell(
            0,
            _union(cell.cpus for cell in cells),
            sum(cell.memory_mib for cell in cells),
            _sum_of_pools([pool for cell in cells for pool in cell.pages]),
            {0: 10},
            _joined(core for cell in cells for core in cell.siblings),
            _union(cell.sockets for cell in cells),
        )
        return type(self)((whole,), tuple(cell.id for cell in cells))

    @property
    def cpus_without_memory(self) -> frozenset[int]:
        """The CPUs of cells without memory. No guest can be pinned to them, because a guest cell
        has its CPUs and its memory on one cell.
        """
        return _union(cell.cpus for cell in self.cells if not cell.memory_mib)

    @property
    def memory_mib(self) -> int:
        """Memory of all cells in MiB."""
        return sum(cell.memory_mib for cell in self.cells)

    @property
    def smt(self) -> bool:
        """Whether some core shows more than one online hardware thread."""
        return any(len(core) > 1 for cell in self.cells for core in cell.siblings)


def _union(sets: Iterable[frozenset[int]]) -> frozenset[int]:
    return frozenset(chain.from_iterable(sets))


def _sum_of_pools(pools: Sequence[PagePool]) -> tuple[PagePool, ...]:
    """Return one pool for each size. How much is free is known if it is known of all of them."""
    totals, free = Counter[int](), Counter[int]()
    for pool in pools:
        totals[pool.size_kib] += pool.total
        free[pool.size_kib] += pool.free or 0
    unknown = {pool.size_kib for pool in pools if pool.free is None}
    return tuple(
        PagePool(size, totals[size], None if size in unknown else free[size])
        for size in sorted(totals)
    )


def _joined(cores: Iterable[frozenset[int]]) -> tuple[frozenset[int], ...]:
    """Return disjoint cores, ordered by their lowest CPU: those that share a CPU are one, because
    each NUMA node may list a part of a core.
    """
    disjoint: list[frozenset[int]] = []
    for core in cores:
        parts = [other for other in disjoint if other & core]
        disjoint = [other for other in disjoint if other not in parts]
        disjoint.append(core.union(*parts))
    return tuple(sorted(disjoint, key=min))


def group_cores(
    cpus: frozenset[int], siblings_of: Callable[[int], frozenset[int]]
) -> tuple[frozenset[int], ...]:
    """Return the cores of ``cpus``, ordered by their lowest CPU. ``siblings_of``: returns the
    hardware threads of the core of a CPU, with the CPU; it is asked once a core.

    :raises ValueError: two cores overlap, or a CPU is not among its own siblings.
    """
    cores: list[frozenset[int]] = []
    seen: set[int] = set()
    for cpu in sorted(cpus):
        if cpu in seen:
            continue
        core = siblings_of(cpu) & cpus
        if cpu not in core or core & seen:
            raise ValueError(f"the siblings of CPU {cpu} contradict those of another")
        seen |= core
        cores.append(core)
    return tuple(cores)


def parse_cpu_list(text: str) -> frozenset[int]:
    """Parse a CPU list: items ``N``, ``A-B``, ``^N``, ``^A-B``, separated by commas; exclusions
    apply to the whole list.

    Blanks and empty items are ignored.

    :raises ValueError: an item is no number or range or is above 1000000, or a text that is not
        blank names no CPU.
    """
    included: set[int] = set()
    excluded: set[int] = set()
    items = [item.strip() for item in text.split(",") if item.strip()]
    for item in items:
        target, span = (excluded, item[1:].strip()) if item.startswith("^") else (included, item)
        first, dash, last = (part.strip() for part in span.partition("-"))
        if not (first.isascii() and first.isdigit()) or (
            dash and not (last.isascii() and last.isdigit())
        ):
            raise ValueError(f"{item!r} is neither a CPU number nor a range A-B")
        low, high = int(first), int(last or first)
        if low > high:
            raise ValueError(f"{item!r} runs backwards")
        if high > 1_000_000:
            raise ValueError(f"{item!r} names a CPU above 1000000")
        target.update(range(low, high + 1))
    cpus = frozenset(included - excluded)
    if text.strip() and not cpus:
        raise ValueError(f"{text!r} leaves no CPU")
    return cpus


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
