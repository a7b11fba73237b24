"""A guest's topology: what it asks for, and where it was put. Requested and selected values are
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
    """One cell of a guest. ``shared`` and ``dedicated`` are guest CPUs; ``memory_mib`` in MiB."""

    shared: frozenset[int]
    dedicated: frozenset[int]
    memory_mib: int

    @property
    def cpus(self) -> frozenset[int]:
        """All CPUs of the cell."""
        return self.shared | self.dedicated


@dataclass(frozen=True, slots=True)
class Guest:
    """What a guest with a topology asks for. ``pages``: None if it does not care. ``realtime``:
    guest CPUs.

    ``cpu_policy``: a guest that says nothing has shared CPUs.
    """

    cells: tuple[GuestCell, ...]
    cpu_policy: CpuPolicy = "shared"
    thread_policy: ThreadPolicy | None = None
    emulator_policy: EmulatorPolicy | None = None
    pages: PageRequest | None = None
    pci_policy: PciPolicy | None = None
    locked_memory: bool = False
    realtime: frozenset[int] = frozenset()

    @property
    def pinned(self) -> bool:
        """Whether some CPU of the guest gets a host CPU of its own."""
        return self.cpu_policy != "shared"

    def emulator_cpus(self, cell: int) -> int:
        """How many host CPUs the emulator needs beside those of guest cell ``cell``: one, beside
        those of the first.
        """
        return int(self.emulator_policy == "isolate" and cell == 0)


@dataclass(frozen=True, slots=True)
class PlacedCell:
    """A guest cell on a host cell. ``pins``: guest CPU to host CPU; ``reserved``: host CPUs for the
    emulator.

    ``page_size_kib``: the size of pages it uses; None if the host tells nothing about pages.
    """

    cell: GuestCell
    host_cell: int
    page_size_kib: int | None = None
    pins: Mapping[int, int] = field(default_factory=dict)
    reserved: frozenset[int] = frozenset()

    @property
    def pinned_cpus(self) -> frozenset[int]:
        """All host CPUs that nobody else may have."""
        return frozenset(self.pins.values()) | self.reserved
