"""The bare Linux host: CPUs, NUMA cells, memory, PCI and mediated devices, encryption and disk from
/sys and psutil, without a hypervisor.
"""

from drivers.host.driver import HostDriver

__all__ = ["HostDriver"]
