"""One immutable snapshot of what a driver found on a node."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from agent.model.devices import PciDevice
from agent.model.domain import Domain
from agent.model.encryption import EncryptionFacts
from agent.model.mdev import MdevParent
from agent.model.topology import Topology
from agent.model.unit_record import AssignableUnit

T = TypeVar("T")

SHOWN = 3


@dataclass(frozen=True, slots=True)
class PartialRead(Generic[T]):
    """``faults``: one line for each thing that was set aside, naming it; empty when everything was
    read.
    """

    value: T
    faults: tuple[str, ...] = ()


def summarize_faults(faults: tuple[str, ...]) -> str:
    """The faults as one line: the first few in words, because a broken bus has hundreds, and how
    many more.
    """
    more = len(faults) - SHOWN
    return "; ".join(faults[:SHOWN]) + (f"; and {more} more" if more > 0 else "")


Section = Literal[
    "cpu", "memory", "disk", "numa", "pci", "mdev", "encryption", "domains", "units", "traits"
]


@dataclass(frozen=True, slots=True)
class CpuFacts:
    """``online``: the CPUs that run now, as the host numbers them. ``features``: kernel or libvirt
    flag names.

    ``sleeping``: dedicated CPUs that are offline only while no guest has them, so that they count.
    """

    online: frozenset[int]
    architecture: str = "x86_64"
    model: str = ""
    vendor: str = ""
    features: frozenset[str] = frozenset()
    sleeping: frozenset[int] = frozenset()

    @property
    def pinnable(self) -> frozenset[int]:
        """The CPUs that guests can be pinned to."""
        return self.online | self.sleeping


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What a node has. ``None`` for a section the node does not have at all (a bare-metal node has
    no ``cpu``).

    ``traits``: standard traits of the hardware and of what the hypervisor can do; true is set on
    the root, false removed, others are left alone. ``memory_mib`` in MiB, ``disk_gib`` in GiB, both
    rounded down, and 0 where a node with CPUs has none; ``taken_at`` in seconds since the epoch.
    ``disk_shared``: others fill that disk too, so that its size moves with their data.
    ``image_cache_gib``: GiB of it that cached images take, rounded up. ``exclusive``: one consumer
    has all of the node at a time, whatever it asked for (a bare-metal node). ``incomplete`` maps
    each section that could not be read fully to the reason: the core then keeps the last good
    values of that part of the tree and marks the node degraded. An incomplete section is never the
    same as an empty one.
    """

    name: str
    taken_at: float
    hypervisor_type: str
    hypervisor_version: int = 0
    cpu: CpuFacts | None = None
    memory_mib: int | None = None
    disk_gib: int | None = None
    numa: Topology | None = None
    pci: tuple[PciDevice, ...] | None = None
    mdev: tuple[MdevParent, ...] | None = None
    encryption: EncryptionFacts | None = None
    domains: tuple[Domain, ...] | None = None
    units: tuple[AssignableUnit, ...] | None = None
    traits: Mapping[str, bool] | None = None
    exclusive: bool = False
    disk_shared: bool = False
    image_cache_gib: int = 0
    incomplete: Mapping[Section, str] = field(default_factory=dict)

    @property
    def forgotten(self) -> tuple[str, ...]:
        """What a node with CPUs has as well, and these facts neither tell nor name as incomplete: a
        driver that forgot it, not a node that lost it.
        """
        said = (("memory", "memory_mib", self.memory_mib), ("disk", "disk_gib", self.disk_gib))
        return tuple(
            name
            for section, name, value in said
            if self.cpu is not None and section not in self.incomplete and value is None
        )

    def disk_gib_after(self, last: int | None) -> int | None:
        """The disk in GiB; ``last``, what was said of it before, as long as a shared one is not
        more than 1 % away from that.
        """
        if (
            not (self.disk_shared and self.disk_gib and last)
            or abs(self.disk_gib - last) * 100 > last
        ):
            return self.disk_gib
        return last

    def complete(self, section: Section) -> bool:
        """Whether ``section`` was read fully."""
        return section not in self.incomplete
