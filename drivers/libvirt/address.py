"""PCI addresses as libvirt writes them: in attributes, in elements, and in the names of node devices."""

import re
from collections.abc import Callable

from agent.model.pci_address import PciAddress
from drivers.libvirt.xml import Element, number

_NAME = re.compile(r"pci_([0-9a-f]{4,8})_([0-9a-f]{2})_([0-9a-f]{2})_([0-7])")


def from_attributes(element: Element, what: str) -> PciAddress:
    """The address in the attributes of an ``<address>``.

    :raises DriverError: a part is missing, no number, or too large.
    """
    return _address(element.get, what)


def from_elements(capability: Element, what: str) -> PciAddress:
    """The address in the elements of a ``pci`` capability; raises as :func:`from_attributes`."""
    return _address(capability.findtext, what)


def from_name(name: str) -> PciAddress | None:
    """The address in the name of a node device; None if that is none of a PCI function, or of a libvirt that names them otherwise."""
    match = _NAME.fullmatch(name)
    if match is None or int(match[3], 16) > 0x1F:
        return None
    return PciAddress(*(int(part, 16) for part in match.groups()))


def _address(part: Callable[[str], str | None], what: str) -> PciAddress:
    return PciAddress(
        number(part("domain"), f"{what}: domain", 0xFFFFFFFF),
        number(part("bus"), f"{what}: bus", 0xFF),
        number(part("slot"), f"{what}: slot", 0x1F),
        number(part("function"), f"{what}: function", 0x7),
    )
