"""The host devices that a guest has: those that its XML names, and those behind the interfaces that
it names.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from agent.errors import DriverError
from agent.model.devices import PciAddress
from agent.model.names import is_uuid, normal_uuid
from drivers.libvirt.node_devices import NodeDevice, NodeDeviceList
from drivers.libvirt.pci import address_of
from drivers.libvirt.xml import Element, fault, from_attributes, text_of

_BY_ADDRESS = (
    "hostdev[@type='pci']/source/address",
    "interface[@type='hostdev']/source/address",
    "disk[@type='nvme']/source/address",
)


@dataclass(frozen=True, slots=True)
class FunctionAliases:
    """Virtual functions by the other names under which guests use them."""

    interfaces: Mapping[str, PciAddress] = field(default_factory=dict)
    """By the name of the interface."""
    vdpa: Mapping[str, PciAddress] = field(default_factory=dict)
    """By the path of the vDPA device."""


def function_aliases(devices: NodeDeviceList) -> FunctionAliases:
    """Return which interface or vDPA device leads to which virtual function. A function that cannot
    be parsed is left out: it is a fault of the PCI section.
    """
    addresses = {
        name: address
        for name, device in devices.by_name.items()
        if (address := _virtual_function(device)) is not None
    }

    def below(kind: str, element: str) -> Iterator[tuple[str, PciAddress]]:
        for device in devices.of_kind(kind):
            name = text_of(device.capability, element)
            if name and device.parent in addresses:
                yield name, addresses[device.parent]

    return FunctionAliases(dict(below("net", "interface")), dict(below("vdpa", "chardev")))


def _virtual_function(device: NodeDevice) -> PciAddress | None:
    if device.kind != "pci" or device.capability.find("capability[@type='phys_function']") is None:
        return None
    try:
        return address_of(device)
    except DriverError:
        return None


def pci_devices_of(domain: Element, aliases: FunctionAliases, what: str) -> tuple[PciAddress, ...]:
    """Return the PCI functions of a guest, ordered by address.

    :raises DriverError: an address is garbled.
    """
    devices = domain.find("devices")
    if devices is None:
        return ()
    named = {
        from_attributes(address, f"{what}: host device")
        for path in _BY_ADDRESS
        for address in devices.findall(path)
    }
    return tuple(sorted(named | set(_behind_interfaces(devices.findall("interface"), aliases))))


def _behind_interfaces(
    interfaces: Iterable[Element], aliases: FunctionAliases
) -> Iterator[PciAddress]:
    """Yield the functions behind interfaces. An interface that is passed through as a whole takes
    its function with it; a shared one does not.
    """
    for interface in interfaces:
        source = interface.find("source")
        if source is None:
            continue
        kind, name = interface.get("type"), source.get("dev", "")
        if kind == "direct" and source.get("mode") == "passthrough" and name in aliases.interfaces:
            yield aliases.interfaces[name]
        elif kind == "vdpa" and name in aliases.vdpa:
            yield aliases.vdpa[name]


def mediated_devices_of(domain: Element, what: str) -> tuple[str, ...]:
    """Return the uuids of the mediated devices of a guest.

    :raises DriverError: one is no uuid.
    """
    uuids = [
        address.get("uuid", "")
        for address in domain.findall("devices/hostdev[@type='mdev']/source/address")
    ]
    for uuid in uuids:
        if not is_uuid(uuid):
            raise fault(what, f"{uuid[:40]!r} of a mediated device is no uuid")
    return tuple(sorted({normal_uuid(uuid) for uuid in uuids}))
