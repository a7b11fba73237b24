"""Which host cells are better for a guest than others."""

from collections.abc import Sequence
from typing import Literal

from agent.model.guest import Guest
from agent.numa.devices import DeviceFit
from agent.numa.host import HostCell

Strategy = Literal["spread", "pack"]


def preferred(host: Sequence[HostCell], guest: Guest, devices: DeviceFit, strategy: Strategy) -> list[int]:
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
