"""Devices of a host as one guest sees them: all alike, on cells, under one of the affinity
policies.
"""

from collections.abc import Hashable, Mapping, Sequence

from agent.model.devices import DeviceDemand
from agent.model.instance import PciPolicy
from agent.numa.host import HostCell

REMOTE = 255


class LocalDevices:
    """``cells``: for each free device the cell it is on, None if unknown. The guest wants ``count``
    of them.
    """

    def __init__(
        self,
        host: Sequence[HostCell],
        cells: Sequence[int | None],
        count: int,
        policy: PciPolicy = "required",
    ) -> None:
        self.count = count
        self.tests = self.steps = 0
        self._cells = cells
        self._policy = policy
        self._sockets: Mapping[int, int | None] = {cell.id: cell.socket for cell in host}
        self._distances = {
            (one.id, other.id): one.distances.get(other.id, 10 if one is other else 20)
            for one in host
            for other in host
        }

    @property
    def wanted(self) -> bool:
        return self.count > 0

    @property
    def demands(self) -> Sequence[DeviceDemand]:
        """Nothing is told before, so that every set that may do is tested."""
        return ()

    def kind(self, cell: int) -> Hashable:
        return cell

    def free(self, cell: int) -> int:
        return self._cells.count(cell)

    def fits(self, cells: frozenset[int]) -> bool:
        return len(self._usable(cells)) >= self.count

    def cost(self, cells: frozenset[int]) -> tuple[int, int] | None:
        self.tests += 1
        if not self.fits(cells):
            return None
        distances = sorted(self._distance(device, cells) for device in self._usable(cells))[
            : self.count
        ]
        local = sum(1 for device in self._cells if device in cells)
        return max(self.count - local, 0), sum(distances)

    def least(self, cells: frozenset[int]) -> tuple[int, int] | None:
        return (0, 0) if self.fits(cells) else None

    def _usable(self, cells: frozenset[int]) -> list[int | None]:
        if self._policy == "preferred":
            return list(self._cells)
        if self._policy == "legacy":
            return [device for device in self._cells if device is None or device in cells]
        if self._policy == "socket":
            sockets = {self._sockets[cell] for cell in cells}
            return [
                device
                for device in self._cells
                if device is not None and self._sockets[device] in sockets
            ]
        return [device for device in self._cells if device in cells]

    def _distance(self, device: int | None, cells: frozenset[int]) -> int:
        return REMOTE if device is None else min(self._distances[device, cell] for cell in cells)
