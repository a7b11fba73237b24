"""The PCI functions of the host and their SR-IOV relations."""

import re
from collections.abc import Iterable, Iterator

from agent.model.devices import PciAddress, PciDevice, Port, own_ports
from agent.model.facts import PartialRead
from drivers.host.sysfs import Sysfs, read_entries

# Bytes; the most that the standard's 15 bits can address.
LARGEST = 32 * 1024
READ_ONLY, END = 0x10, 0x0F


def serial_number(sysfs: Sysfs, folder: str) -> str | None:
    """Return the serial number in the vital product data of the function in ``folder``; None if
    there is none.

    A number that cannot be read counts as none, because only root may read it, and many cards have
    malformed data.
    """
    data = sysfs.optional_bytes(f"{folder}/vpd", LARGEST)
    return _serial_number(data) if data else None


def _serial_number(data: bytes) -> str | None:
    for tag, content in _resources(data):
        if tag == READ_ONLY:
            found = next((value for keyword, value in _fields(content) if keyword == b"SN"), b"")
            text = found.rstrip(b"\0 ").decode("ascii", "replace").strip()
            return text if text and text.isascii() and text.isprintable() else None
    return None


def _resources(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and content of each resource up to the end tag; a resource that is cut off is left
    out.
    """
    place = 0
    while place < len(data):
        head = data[place]
        if head & 0x80:
            tag, size, place = (
                head & 0x7F,
                int.from_bytes(data[place + 1 : place + 3], "little"),
                place + 3,
            )
        else:
            tag, size, place = head >> 3, head & 0x07, place + 1
        if tag == END and not head & 0x80:
            return
        if place + size <= len(data):
            yield tag, data[place : place + size]
        place += size


def _fields(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keyword and value of each field of a resource."""
    place = 0
    while place + 3 <= len(content):
        size = content[place + 2]
        yield content[place : place + 2], content[place + 3 : place + 3 + size]
        place += 3 + size


# Drivers that hand a device to a program on the host: DPDK, or a virtual machine that is not
# libvirt's.
LENDERS = frozenset({"vfio-pci", "uio_pci_generic", "igb_uio"})

_UP = 0x1
_MOST = 64


def interfaces_of(sysfs: Sysfs, folder: str) -> tuple[str, ...]:
    """Return the interfaces of the function in ``folder``, the first port first; none if it has
    none, for example while a guest has it.

    :raises DriverError: a port has no number.
    """
    return own_ports(
        Port(
            name,
            # Most ports have no name, and the kernel refuses to read it.
            (sysfs.optional_bytes(f"{folder}/net/{name}/phys_port_name", _MOST) or b"")
            .decode("ascii", "replace")
            .strip(),
            sysfs.optional_integer(f"{folder}/net/{name}/dev_port") or 0,
        )
        for name in sysfs.names(f"{folder}/net")
    )


def host_use(
    sysfs: Sysfs, folder: str, interfaces: Iterable[str], driver: str | None
) -> str | None:
    """Return what on the host uses the function, in words; None if nothing does.

    :raises DriverError: a file is garbled or cannot be read.
    """
    for interface in interfaces:
        flags = sysfs.optional_text(f"{folder}/net/{interface}/flags") or "0"
        if re.fullmatch(r"0x[0-9a-f]{1,8}|0", flags) is None:
            raise sysfs.fault(f"{folder}/net/{interface}/flags", f"{flags!r} are no flags")
        if int(flags, 16) & _UP:
            return f"interface {interface} is up"
    if driver in LENDERS and (sysfs.optional_integer(f"{folder}/enable") or 0) > 0:
        return f"a program has it by {driver}"
    return None


FOLDER = "bus/pci/devices"
# The class of network controllers.
NETWORK = 0x02


def read_devices(sysfs: Sysfs) -> PartialRead[tuple[PciDevice, ...]]:
    """Return all PCI functions, ordered by address. A function that cannot be read becomes a fault;
    the others stay.
    """
    devices = read_entries(sysfs, FOLDER, _device)
    return PartialRead(
        tuple(sorted(devices.value, key=lambda device: device.address)), devices.faults
    )


def _device(sysfs: Sysfs, name: str) -> PciDevice:
    """Read one PCI function.

    :raises DriverError: a file is missing, garbled or cannot be read.
    """
    folder = f"{FOLDER}/{name}"
    address = _address(sysfs, folder, name)
    class_code = _class_code(sysfs, f"{folder}/class")
    cell = sysfs.optional_integer(f"{folder}/numa_node")
    physical = sysfs.link_name(f"{folder}/physfn")
    most = sysfs.optional_integer(f"{folder}/sriov_totalvfs") or 0
    driver, interfaces = sysfs.link_name(f"{folder}/driver"), interfaces_of(sysfs, folder)
    return PciDevice(
        address=address,
        vendor_id=_hex(sysfs, f"{folder}/vendor", sysfs.text(f"{folder}/vendor"), 4),
        product_id=_hex(sysfs, f"{folder}/device", sysfs.text(f"{folder}/device"), 4),
        class_code=class_code,
        # -1 is the kernel's word for "the firmware does not say".
        numa_node=None if cell is None or cell < 0 else cell,
        physical_function=None
        if physical is None
        else _address(sysfs, f"{folder}/physfn", physical),
        virtual_functions=_virtual_functions(sysfs, folder) if most else (),
        max_virtual_functions=most,
        kernel_driver=driver,
        virtual_function_product_id=_virtual_product_id(sysfs, f"{folder}/sriov_vf_device")
        if most
        else None,
        netdev=interfaces[0] if interfaces else None,
        other_netdevs=interfaces[1:],
        mac_address=sysfs.optional_text(f"{folder}/net/{interfaces[0]}/address")
        if most and interfaces
        else None,
        serial_number=serial_number(sysfs, folder)
        if class_code is not None and class_code >> 16 == NETWORK
        else None,
        has_vdpa=physical is not None and bool(sysfs.numbers(folder, r"vdpa(\d+)")),
        label=sysfs.optional_text(f"{folder}/label") or None,
        host_use=host_use(sysfs, folder, interfaces, driver) if physical is not None else None,
    )


def _class_code(sysfs: Sysfs, path: str) -> int | None:
    text = sysfs.optional_text(path)
    return None if text is None else int(_hex(sysfs, path, text, 6), 16)


def _virtual_product_id(sysfs: Sysfs, path: str) -> str | None:
    """Return the product id of a PF's VFs; None on older kernels, which do not report it."""
    text = sysfs.optional_text(path)
    return None if text is None else _hex(sysfs, path, f"0x{text}", 4)


def _virtual_functions(sysfs: Sysfs, folder: str) -> tuple[PciAddress, ...]:
    """Return the VFs of a PF, in the order of its numbered links."""
    links = (f"{folder}/virtfn{number}" for number in sysfs.numbers(folder, r"virtfn(\d+)"))
    return tuple(_address(sysfs, link, sysfs.link_name(link) or "") for link in links)


def _address(sysfs: Sysfs, path: str, text: str) -> PciAddress:
    try:
        return PciAddress.parse(text)
    except ValueError as error:
        raise sysfs.fault(path, str(error)) from error


def _hex(sysfs: Sysfs, path: str, text: str, digits: int) -> str:
    match = re.fullmatch(f"0x([0-9a-f]{{{digits}}})", text.lower())
    if match is None:
        raise sysfs.fault(path, f"{text!r} is not 0x and {digits} hexadecimal digits")
    return match[1]
