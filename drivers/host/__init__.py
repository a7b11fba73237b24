"""The bare Linux host: CPUs, NUMA cells, memory, PCI and mediated devices, encryption and disk from
/sys and psutil, no hypervisor asked.
"""

from drivers.host.driver import HostDriver

__all__ = ["HostDriver"]
