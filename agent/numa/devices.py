"""What the fit has to know of the devices that a guest wants."""

from typing import Protocol


class Devices(Protocol):
    """The free devices of a host, as one guest sees them. Cells are ids."""

    @property
    def wanted(self) -> bool:
        """Whether the guest wants any."""

    def free(self, cell: int) -> int:
        """How many free devices are on the cell."""

    def fits(self, cells: frozenset[int]) -> bool:
        """Whether all wanted devices can be had if the guest sits on ``cells``."""

    def cost(self, cells: frozenset[int]) -> tuple[int, int]:
        """How many wanted devices would not be local, and the sum of their distances to the nearest cell."""


class NoDevices:
    """A guest without devices on a host without any."""

    wanted = False

    def free(self, cell: int) -> int:  # noqa: ARG002
        """None."""
        return 0

    def fits(self, cells: frozenset[int]) -> bool:  # noqa: ARG002
        """Always."""
        return True

    def cost(self, cells: frozenset[int]) -> tuple[int, int]:  # noqa: ARG002
        """Nothing."""
        return 0, 0
