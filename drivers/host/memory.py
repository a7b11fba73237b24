"""The memory of the host, and the reasons for its source.

There are three sources, and they differ: the kernel's total (``/proc/meminfo``, which psutil reads
and libvirt gives to nova), the sum of the cells' ``MemTotal``, and the memory plugged in. On the
running machine the kernel's total counts: it is what guests can be given, and what the host had in
Placement if nova reported it. The sum of the cells is mostly the same, but can be far less: on a
virtual machine of 24 GiB, Linux 6.18 was seen to count 4 GiB in its only cell. Each cell keeps its
own figure, the only one there is.

A recording of /sys has no total, and this machine's total is another's: there the memory is the sum
of the cells, each rounded down to MiB. The source depends on ``[host] sysfs_root`` alone, so that
the figure does not alternate between two sources while the agent runs.

A host without NUMA has one cell that is the whole host, with the kernel's total; so has a recording
of such a host, for want of another source, and thus gets the memory of this machine, like the disk.
"""

import psutil

from agent.errors import DriverError
from agent.model.facts import PartialRead
from agent.model.topology import Topology
from drivers.host.sysfs import Sysfs

MIB = 1024 * 1024


def read_memory_mib(sysfs: Sysfs, topology: PartialRead[Topology]) -> PartialRead[int]:
    """Return the host's memory in MiB, rounded down; for a recording, with the faults of its
    cells.
    """
    if not sysfs.is_live:
        return PartialRead(topology.value.memory_mib, topology.faults)
    try:
        return PartialRead(kernel_total_mib())
    except DriverError as error:
        return PartialRead(0, (error.message,))


def kernel_total_mib() -> int:
    """Return the kernel's total of this machine in MiB, rounded down.

    :raises DriverError: it cannot be read.
    """
    try:
        return int(psutil.virtual_memory().total) // MIB
    except OSError as error:
        raise DriverError(f"the kernel's total memory cannot be read: {error}") from error
