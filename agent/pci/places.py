"""Places: how the free devices of each cell rank for a guest on some cells of the host. Pure."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent.model.guest import PciPolicy
from agent.pci.device_request import FAR, Nearness
from agent.pci.lots import Bits, Node


class LotPlace(NamedTuple):
    """How the devices of a cell rank for the guest's cells."""

    allowed: Bits
    """The slots that may have them."""
    price: int = 0
    """Of one device."""
    far: int = 0
    """1 if the cell is far, else 0."""
    distance: int = 0
    """To the nearest of the guest's cells."""


HERE = LotPlace(-1)
NOWHERE = LotPlace(0)

Places = Mapping[Node, LotPlace]


class PlaceRanking:
    """The places of the cells that have devices, for one guest on any of the host's cells."""

    def __init__(
        self, nodes: frozenset[Node], policies: Sequence[PciPolicy], count: int, nearness: Nearness
    ) -> None:
        """``nodes``: the cells that have devices. ``policies``: of each slot. ``count``: how many
        devices the guest wants.
        """
        self._nodes, self._policies, self._count = tuple(nodes), policies, count
        self._nearness = nearness
        # Each term of a price outweighs the sum of all terms before it: harm to others, unknown
        # cell, another socket, distance, not local.
        self._of_unknown = 2 * count + 1
        self._unknown = LotPlace(self.of_policy("preferred", "legacy"), self._of_unknown)
        # Without the socket of every cell no cell is known to be on the same one.
        self._sockets = {} if None in nearness.sockets.values() else nearness.sockets
        self._distances: dict[int, Sequence[int]] = {}
        # Of the cells that were asked about last.
        self._last: tuple[frozenset[int], Places] | None = None
        self._far: dict[tuple[bool, int], LotPlace] = {}

    @property
    def only_near(self) -> bool:
        """Whether no policy admits devices of other cells: only local ones, and perhaps devices of
        unknown cells.
        """
        return not self.of_policy("preferred", "socket")

    def of_policy(self, *policies: PciPolicy) -> Bits:
        """Return the slots that have one of these policies."""
        return sum(1 << slot for slot, policy in enumerate(self._policies) if policy in policies)

    def near(self, cells: frozenset[int]) -> Places:
        """Return the places of the devices that are not far from ``cells``."""
        places: dict[Node, LotPlace] = {node: HERE for node in self._nodes if node in cells}
        if None in self._nodes and self.only_near:
            places[None] = self._unknown
        return places

    def everywhere(self, cells: frozenset[int]) -> Places:
        """Return the places of all devices: local ones rank first, then those of unknown cells, of
        the same socket, and by distance.
        """
        if self._last is None or self._last[0] != cells:
            self._last = cells, self._places(cells)
        return self._last[1]

    def _places(self, cells: frozenset[int]) -> Places:
        sockets = {self._sockets.get(cell) for cell in cells}
        lines = [self._line(cell) for cell in cells] or [[FAR] * len(self._nodes)]
        return {
            node: self._unknown
            if node is None
            else HERE
            if node in cells
            else self._far_place(
                node in self._sockets and self._sockets[node] in sockets, min(distances)
            )
            for node, distances in zip(self._nodes, zip(*lines, strict=True), strict=True)
        }

    def _far_place(self, beside: bool, distance: int) -> LotPlace:
        """Return the place of a cell that is not the guest's. ``beside``: on the same socket."""
        known = self._far.get((beside, distance))
        if known is None:
            count = self._count
            far = (FAR * count + 1 + distance) * (count + 1) + (not beside)
            known = LotPlace(
                self.of_policy("preferred", *(("socket",) if beside else ())),
                far * (count + 1) * self._of_unknown,
                1,
                distance,
            )
            self._far[beside, distance] = known
        return known

    def _line(self, cell: int) -> Sequence[int]:
        """Return the distances of ``cell`` to all cells that have devices."""
        known = self._distances.get(cell)
        if known is None:
            line = self._nearness.distances.get(cell, {})
            known = self._distances[cell] = [
                FAR if node is None else line.get(node, FAR) for node in self._nodes
            ]
        return known
