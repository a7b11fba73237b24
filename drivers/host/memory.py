"""The memory of the host as a whole, and why it is read from where it is.

Three sources tell it and they do not agree: the kernel's total (``/proc/meminfo``, which psutil
reads and libvirt gives to nova), the sum of the cells' ``MemTotal``, and what is plugged in. The
kernel's total wins on the running machine: it is what guests can be given, and what the host had in
Placement if nova reported it. The sum of the cells is mostly the same, but can be far less: on a
virtual machine of 24 GiB, Linux 6.18 was seen to count 4 GiB in its only cell. Each cell keeps its
own figure, the only one there is.

A recording of /sys has no total, and this machine's would be another's: there the whole is the sum
of the cells, each rounded down to MiB. Which source it is depends on nothing but ``[host]
sysfs_root``, so that the figure never flaps between two while the agent runs.

A host without NUMA has one cell that is the whole host, with the kernel's total; so has a recording
of one, for want of any other, and thus gets the memory of this machine, as it does the disk.
"""

import psutil

from agent.errors import DriverError
from agent.model.facts import PartialRead
from agent.model.topology import Topology
from drivers.host.sysfs import Sysfs

MIB = 1024 * 1024


def read_memory_mib(sysfs: Sysfs, topology: PartialRead[Topology]) -> PartialRead[int]:
    """Memory of the host in MiB, rounded down; in a recording, as incomplete as its cells."""
    if not sysfs.is_live:
        return PartialRead(topology.value.memory_mib, topology.faults)
    try:
        return PartialRead(kernel_total_mib())
    except DriverError as error:
        return PartialRead(0, (error.message,))


def kernel_total_mib() -> int:
    """What the kernel of this machine has to give, in MiB, rounded down.

    :raises DriverError: it does not say.
    """
    try:
        return int(psutil.virtual_memory().total) // MIB
    except OSError as error:
        raise DriverError(f"the kernel's total memory cannot be read: {error}") from error
