"""Topology of a guest: what it requests, and where it was placed. Requested and selected values are
different fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

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
