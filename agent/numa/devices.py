"""Devices of a guest as the fit sees them, and the order of preference of host cells."""

from collections.abc import Hashable, Sequence
from typing import Literal, Protocol

from agent.model.devices import DeviceDemand
from agent.model.guest import Guest
from agent.numa.host import HostCell


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
