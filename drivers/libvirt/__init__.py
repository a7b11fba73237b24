"""A hypervisor managed by libvirt: QEMU guests, with what libvirtd says of the host and of them."""
