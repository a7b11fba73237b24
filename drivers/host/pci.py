"""The PCI functions of the host and their SR-IOV relations."""

import re

from agent.errors import DriverError
from agent.model.devices import PciDevice
from agent.model.pci_address import PciAddress
from agent.model.partial_read import PartialRead
from drivers.host.network import host_use, interface_of
from drivers.host.sysfs import Sysfs
from drivers.host.vpd import serial_number

FOLDER = "bus/pci/devices"
# The class of network controllers.
NETWORK = 0x02


def read_devices(sysfs: Sysfs) -> PartialRead[tuple[PciDevice, ...]]:
    """All PCI functions, by address. One that cannot be read is set aside; the others stay."""
    devices: list[PciDevice] = []
    faults: dict[str, str] = {}
    try:
        for name in sysfs.names(FOLDER):
            try:
                devices.append(_device(sysfs, name))
            except DriverError as error:
                faults[name] = error.message
        # A device that was unplugged while it was read is no fault: the kernel no longer lists it.
        listed = sysfs.names(FOLDER) if faults else ()
    except DriverError as error:
        return PartialRead((), (error.message,))
    devices.sort(key=lambda device: device.address)
    return PartialRead(tuple(devices), tuple(fault for name, fault in faults.items() if name in listed))


def _device(sysfs: Sysfs, name: str) -> PciDevice:
    folder = f"{FOLDER}/{name}"
    address = _address(sysfs, folder, name)
    class_code = _class_code(sysfs, f"{folder}/class")
    cell = sysfs.optional_integer(f"{folder}/numa_node")
    physical = sysfs.link_name(f"{folder}/physfn")
    most = sysfs.optional_integer(f"{folder}/sriov_totalvfs") or 0
    driver, interface = sysfs.link_name(f"{folder}/driver"), interface_of(sysfs, folder)
    return PciDevice(
        address=address,
        vendor_id=_hex(sysfs, f"{folder}/vendor", sysfs.text(f"{folder}/vendor"), 4),
        product_id=_hex(sysfs, f"{folder}/device", sysfs.text(f"{folder}/device"), 4),
        class_code=class_code,
        # -1 is the kernel's word for "the firmware does not say".
        numa_node=None if cell is None or cell < 0 else cell,
        physical_function=None if physical is None else _address(sysfs, f"{folder}/physfn", physical),
        virtual_functions=_virtual_functions(sysfs, folder) if most else (),
        max_virtual_functions=most,
        kernel_driver=driver,
        virtual_function_product_id=_virtual_product_id(sysfs, f"{folder}/sriov_vf_device") if most else None,
        netdev=interface,
        mac_address=sysfs.optional_text(f"{folder}/net/{interface}/address") if most and interface is not None else None,
        serial_number=serial_number(sysfs, folder) if class_code is not None and class_code >> 16 == NETWORK else None,
        has_vdpa=physical is not None and bool(sysfs.numbers(folder, r"vdpa(\d+)")),
        label=sysfs.optional_text(f"{folder}/label") or None,
        host_use=host_use(sysfs, folder, interface, driver) if physical is not None else None,
    )


def _class_code(sysfs: Sysfs, path: str) -> int | None:
    text = sysfs.optional_text(path)
    return None if text is None else int(_hex(sysfs, path, text, 6), 16)


def _virtual_product_id(sysfs: Sysfs, path: str) -> str | None:
    """What the VFs of a PF are; older kernels do not say."""
    text = sysfs.optional_text(path)
    return None if text is None else _hex(sysfs, path, f"0x{text}", 4)


def _virtual_functions(sysfs: Sysfs, folder: str) -> tuple[PciAddress, ...]:
    """The VFs of a PF, as its links number them."""
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
