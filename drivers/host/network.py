"""The network interface of a PCI function, and whether the host itself uses the function."""

import re

from drivers.host.sysfs import Sysfs

# What lends a device to a program on the host: DPDK, or a virtual machine that nobody told us of.
LENDERS = frozenset({"vfio-pci", "uio_pci_generic", "igb_uio"})

_UP = 0x1
_MOST = 64
_REPRESENTATIVE = re.compile(rb"(c\d+)?pf\d+(vf|sf)\d+\s*")


def interface_of(sysfs: Sysfs, folder: str) -> str | None:
    """The interface of the function in ``folder``; None if it has none, as while a guest has it."""
    names = sysfs.names(f"{folder}/net")
    if len(names) < 2:
        return next(iter(names), None)
    # Where a card switches by itself, its PF has an interface for each VF as well.
    own = [name for name in names if not _REPRESENTATIVE.fullmatch(sysfs.optional_bytes(f"{folder}/net/{name}/phys_port_name", _MOST) or b"")]
    return next(iter(own), None)


def host_use(sysfs: Sysfs, folder: str, interface: str | None, driver: str | None) -> str | None:
    """What of the host uses the function, in words; None if nothing does.

    :raises DriverError: it cannot be told.
    """
    if interface is not None:
        flags = sysfs.optional_text(f"{folder}/net/{interface}/flags") or "0"
        if re.fullmatch(r"0x[0-9a-f]{1,8}|0", flags) is None:
            raise sysfs.fault(f"{folder}/net/{interface}/flags", f"{flags!r} are no flags")
        return f"interface {interface} is up" if int(flags, 16) & _UP else None
    if driver in LENDERS and (sysfs.optional_integer(f"{folder}/enable") or 0) > 0:
        return f"a program has it by {driver}"
    return None
