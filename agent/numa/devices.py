"""What the fit has to know of the devices that a guest wants."""

from collections.abc import Hashable, Sequence
from typing import Literal, Protocol

from agent.model.devices import DeviceDemand
from agent.model.guest import Guest
from agent.numa.host import HostCell


class DeviceFit(Protocol):
    """The free devices of a host, as one guest sees them. Cells are ids.

    More cells never cost more than some of them: what the search leaves out depends on that.
    """

    @property
    def wanted(self) -> bool:
        """Whether the guest wants any."""

    @property
    def demands(self) -> Sequence[DeviceDemand]:
        """What can be told of all sets of cells at once; the search is quicker for it."""

    def free(self, cell: int) -> int:
        """How many wanted devices are on the cell; of a guest that wants none, how many
        there are.
        """

    def kind(self, cell: int) -> Hashable:
        """Equal for cells that may stand for each other, as far as devices go, if they are equally
        far from all others.
        """

    def cost(self, cells: frozenset[int]) -> tuple[int, int] | None:
        """How many wanted devices would not be local, and the sum of their distances to the nearest
        cell; None if not all can be had.

        :raises Undecided: nobody knows.
        """

    def least(self, cells: frozenset[int]) -> tuple[int, int] | None:
        """What they cost at least on some of ``cells``; None if they cannot be had there."""


class NoDeviceFit:
    """A guest without devices on a host without any."""

    wanted = False
    demands = ()

    def free(self, cell: int) -> int:  # noqa: ARG002
        """None."""
        return 0

    def kind(self, cell: int) -> Hashable:  # noqa: ARG002
        """All are alike."""
        return None

    def cost(self, cells: frozenset[int]) -> tuple[int, int] | None:  # noqa: ARG002
        """Nothing."""
        return 0, 0

    def least(self, cells: frozenset[int]) -> tuple[int, int] | None:  # noqa: ARG002
        """Nothing."""
        return 0, 0


Strategy = Literal["spread", "pack"]


def preferred(
    host: Sequence[HostCell], guest: Guest, devices: DeviceFit, strategy: Strategy
) -> list[int]:
    """The positions of the cells, most wanted first: by devices, then by CPUs, then by memory, then
    as given.

    As given if the guest needs all of them.
    """
    sign = 1 if strategy == "spread" else -1

    def key(column: int) -> tuple[int, int, int]:
        cell = host[column]
        # Who wants no device leaves the cells that have some to those who do.
        near = -devices.free(cell.id) if devices.wanted else devices.free(cell.id)
        cpus = -len(cell.free_dedicated) if guest.pinned else cell.shared_used
        return near, sign * cpus, sign * -cell.free_memory_mib

    columns = range(len(host))
    return sorted(columns, key=key) if len(guest.cells) < len(host) else list(columns)
