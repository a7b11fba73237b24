"""Which host cells are better for a guest than others."""

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Literal

from agent.model.guest import Guest
from agent.numa.devices import Devices
from agent.numa.host import HostCell

Strategy = Literal["spread", "pack"]
Score = tuple[int, int, int]
"""Of a set of cells, lower is better: devices that are not local, their distances, how far the cells lie apart."""


def preferred(host: Sequence[HostCell], guest: Guest, devices: Devices, strategy: Strategy) -> list[int]:
    """The positions of the cells, most wanted first: by devices, then by CPUs, then by memory, then as given.

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


class Scores:
    """The scores of sets of a host's cells."""

    def __init__(self, host: Sequence[HostCell], devices: Devices) -> None:
        self._ids = [cell.id for cell in host]
        self._devices = devices
        # Looked up once, because a large host has thousands of sets.
        self._apart = {(one, other): cell.distances.get(host[other].id, 0) for one, cell in enumerate(host) for other in range(len(host))}

    def cells(self, columns: Iterable[int]) -> frozenset[int]:
        """The ids of the cells at the positions ``columns``."""
        return frozenset(map(self._ids.__getitem__, columns))

    def of(self, columns: Sequence[int]) -> Score:
        """The score of the cells at the positions ``columns``."""
        apart = sum(map(self._apart.__getitem__, combinations(columns, 2)))
        if not self._devices.wanted:
            return 0, 0, apart
        return (*self._devices.cost(self.cells(columns)), apart)
