"""Huge pages: the pools of each page size that the kernel has set aside, per cell.

Pages of the base size are no pool: they are the rest of the cell's memory, and sysfs does not tell their size (4 KiB on
x86, 4 or 64 on Arm and POWER, and a recording's kernel cannot be asked). They are not reported.
"""

from agent.model.topology import PagePool
from drivers.host.sysfs import Sysfs


def read_pools(sysfs: Sysfs, folder: str) -> tuple[PagePool, ...]:
    """The pools in ``folder``, smallest pages first; none on a kernel without huge pages.

    Surplus pages count, because the kernel counts them in ``nr_hugepages``.

    :raises DriverError: a pool's file is missing or garbled.
    """
    return tuple(_pool(sysfs, folder, size) for size in sysfs.numbers(folder, r"hugepages-(\d+)kB"))


def _pool(sysfs: Sysfs, folder: str, size_kib: int) -> PagePool:
    pool = f"{folder}/hugepages-{size_kib}kB"
    return PagePool(size_kib, total=sysfs.integer(f"{pool}/nr_hugepages"), free=sysfs.optional_integer(f"{pool}/free_hugepages"))
