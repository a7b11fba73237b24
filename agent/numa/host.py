"""Host cells with their usage, how a placed guest cell changes it, and the order in which a fit
prefers them.
"""

import logging
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, Self

from agent.errors import AgentError
from agent.model.devices import DeviceDemand
from agent.model.instance import Guest, PlacedCell

LOG = logging.getLogger(__name__)


class CellUsageError(AgentError):
    """A placed guest cell cannot be added to its host cell, or not be removed from it: a record is
    wrong.
    Remedy: correct or end the record that the message names.
    """

    code = "numa.usage"


@dataclass(frozen=True, slots=True)
class Pages:
    """Pages of one size."""

    size_kib: int
    """KiB."""
    total: int
    """Pages."""
    used: int = 0
    """Pages."""
    reserved: int = 0
    """Pages."""

    @property
    def free(self) -> int:
        """Pages that a guest can have."""
        return self.total - self.used - self.reserved


@dataclass(frozen=True, slots=True)
class HostCell:
    """One NUMA cell of the host with what is used of it."""

    id: int
    shared: frozenset[int]
    """Host CPUs offered to shared guest CPUs."""
    dedicated: frozenset[int]
    """Host CPUs offered to dedicated guest CPUs."""
    memory_mib: int
    """MiB."""
    memory_used_mib: int = 0
    """MiB."""
    shared_used: int = 0
    """The number of shared guest CPUs."""
    pinned: frozenset[int] = frozenset()
    """Host CPUs that guest CPUs or emulators are pinned to."""
    siblings: tuple[frozenset[int], ...] = ()
    """The offered hardware threads of each core."""
    pages: tuple[Pages, ...] = ()
    physnets: frozenset[str] = frozenset()
    """The physical networks local to the cell."""
    tunneled: bool = False
    """Whether tunnels are local to the cell."""
    socket: int | None = None
    distances: Mapping[int, int] = field(default_factory=dict)
    """Cell id to distance (10 is local)."""
    offline: frozenset[int] = frozenset()
    """CPUs that would be offered to dedicated guest CPUs if they were online."""

    @property
    def cpus(self) -> frozenset[int]:
        """All host CPUs that are offered, or would be if they were online."""
        return self.shared | self.dedicated | self.offline

    @property
    def free_dedicated(self) -> frozenset[int]:
        """Host CPUs that guests can still be pinned to."""
        return self.dedicated - self.pinned

    @property
    def degraded(self) -> frozenset[int]:
        """Host CPUs that went offline under a guest that is pinned to them."""
        return self.pinned & self.offline

    @property
    def free_memory_mib(self) -> int:
        """MiB that are not promised."""
        return self.memory_mib - self.memory_used_mib

    @property
    def smt(self) -> bool:
        """Whether some core has more than one thread."""
        return any(len(core) > 1 for core in self.siblings)

    @property
    def smallest_page_kib(self) -> int | None:
        """The size of ordinary pages; None if nothing is known about pages."""
        return min((pool.size_kib for pool in self.pages), default=None)

    @property
    def huge_pages(self) -> tuple[Pages, ...]:
        """The pages of all sizes but the smallest."""
        return tuple(pool for pool in self.pages if pool.size_kib != self.smallest_page_kib)

    def free_cores(self) -> list[list[int]]:
        """Return the free threads of each core that has some, threads and cores in ascending
        order.
        """
        free = self.free_dedicated
        cores = [sorted(core & free) for core in self.siblings if core & free]
        lone = free.difference(*self.siblings)
        return sorted([*cores, *([cpu] for cpu in lone)])

    def with_guest(self, placed: PlacedCell) -> Self:
        """Return the cell with one more guest cell. A guest stays pinned to a CPU that went
        offline, or that is not offered any more.

        :raises CellUsageError: a CPU is pinned already; nothing is added.
        """
        cpus = placed.pinned_cpus
        if taken := sorted(cpus & self.pinned):
            raise CellUsageError(
                f"cell {self.id}: CPUs {taken} are pinned already",
                "two records claim the same CPUs",
                cpus=taken,
            )
        return replace(self._with_change(placed, 1), pinned=self.pinned | cpus)

    def without_guest(self, placed: PlacedCell) -> Self:
        """Return the cell without a guest cell that was added before. No sum falls below 0; if one
        would, that is logged.

        :raises CellUsageError: a CPU of the guest cell is not pinned; nothing is removed.
        """
        if free := sorted(placed.pinned_cpus - self.pinned):
            raise CellUsageError(
                f"cell {self.id}: CPUs {free} are not pinned",
                "the record was removed before",
                cpus=free,
            )
        return replace(self._with_change(placed, -1), pinned=self.pinned - placed.pinned_cpus)

    def _with_change(self, placed: PlacedCell, sign: int) -> Self:
        guest = placed.cell
        size = self.smallest_page_kib if placed.page_size_kib is None else placed.page_size_kib
        memory, cpus = (
            self.memory_used_mib + sign * guest.memory_mib,
            self.shared_used + sign * len(guest.shared),
        )
        # A part of a page takes a whole page.
        used = {
            pool.size_kib: pool.used + sign * -(-guest.memory_mib * 1024 // size)
            for pool in self.pages
            if pool.size_kib == size
        }
        if min(memory, cpus, *used.values()) < 0:
            LOG.error(
                (
                    "Accounting fault: cell %d gets back more than was used of it: %d MiB, %d "
                    "shared CPUs"
                ),
                self.id,
                guest.memory_mib,
                len(guest.shared),
            )
        pages = tuple(
            replace(pool, used=max(used.get(pool.size_kib, pool.used), 0)) for pool in self.pages
        )
        return replace(self, memory_used_mib=max(memory, 0), shared_used=max(cpus, 0), pages=pages)


class DeviceFit(Protocol):
    """The free devices of a host, as one guest can have them. Cells are given by their ids.

    A larger set of cells never costs more than a part of it: what the search leaves out depends on
    that.
    """

    @property
    def wanted(self) -> bool:
        """Whether the guest wants any device."""

    @property
    def demands(self) -> Sequence[DeviceDemand]:
        """Demands that hold for all sets of cells; they make the search shorter."""

    @property
    def steps(self) -> int:
        """How many lots of devices were searched so far."""

    def free(self, cell: int) -> int:
        """Return the number of wanted devices on the cell; for a guest that wants none, the number
        of all devices there.
        """

    def kind(self, cell: int) -> Hashable:
        """Return a value that is equal for cells whose devices are interchangeable, if the cells
        are equally far from all others.
        """

    def cost(self, cells: frozenset[int]) -> tuple[int, int] | None:
        """Return how many wanted devices would not be local, and the sum of their distances to the
        nearest cell; None if not all can be had.

        :raises Undecided: the search was given up.
        """

    def least(self, cells: frozenset[int]) -> tuple[int, int] | None:
        """Return a lower bound of the cost for any part of ``cells``; None if the devices cannot be
        had.
        """


class NoDeviceFit:
    """Devices of a guest that wants none, on a host without any."""

    wanted = False
    demands = ()
    steps = 0

    def free(self, cell: int) -> int:  # noqa: ARG002
        """Return 0."""
        return 0

    def kind(self, cell: int) -> Hashable:  # noqa: ARG002
        """Return the same value for all cells."""
        return None

    def cost(self, cells: frozenset[int]) -> tuple[int, int] | None:  # noqa: ARG002
        """Return no cost."""
        return 0, 0

    def least(self, cells: frozenset[int]) -> tuple[int, int] | None:  # noqa: ARG002
        """Return no cost."""
        return 0, 0


Strategy = Literal["spread", "pack"]


def preferred(
    host: Sequence[HostCell], guest: Guest, devices: DeviceFit, strategy: Strategy
) -> list[int]:
    """Return the positions of the cells, most wanted first: by devices, then CPUs, then memory,
    then the given order.

    The given order if the guest needs all cells.
    """
    sign = 1 if strategy == "spread" else -1

    def key(column: int) -> tuple[int, int, int]:
        cell = host[column]
        # A guest without devices leaves the cells that have some to other guests.
        near = -devices.free(cell.id) if devices.wanted else devices.free(cell.id)
        cpus = -len(cell.free_dedicated) if guest.pinned else cell.shared_used
        return near, sign * cpus, sign * -cell.free_memory_mib

    columns = range(len(host))
    return sorted(columns, key=key) if len(guest.cells) < len(host) else list(columns)
