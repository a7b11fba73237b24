"""A hypervisor managed by libvirt: QEMU guests, and the host as libvirtd reports it."""

from drivers.libvirt.driver import LibvirtDriver

__all__ = ["LibvirtDriver"]
