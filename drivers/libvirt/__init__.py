"""A hypervisor managed by libvirt: QEMU guests, with what libvirtd says of the host and of them."""

from drivers.libvirt.driver import LibvirtDriver

__all__ = ["LibvirtDriver"]
