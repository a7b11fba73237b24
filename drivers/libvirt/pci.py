"""The PCI functions of the host with their SR-IOV relations, and its mediated devices with their
parents, from its node devices.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import PurePosixPath

from agent.errors import DriverError
from agent.model.devices import PCI, Mdev, MdevParent, PciAddress, PciDevice, Port, own_ports
from agent.model.facts import PartialRead
from agent.model.names import ConsumerUuid, is_uuid, normal_uuid
from drivers.libvirt.raw_capabilities import NodeDevice, NodeDeviceList
from drivers.libvirt.xml import (
    Element,
    fault,
    from_name,
    integer,
    natural,
    number,
    pci_address,
    read_each,
    text_of,
)

# udev puts the kernel's name of the port at the end of the interface's.
_PORT_NAME = re.compile(r"(c\d+)?pf\d+(vf|sf)\d+$")
# The states of an interface that is off; the kernel also calls an interface down that merely has no
# link.
_OFF = frozenset({"", "down", "notpresent"})


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface of a function."""

    name: str
    mac_address: str | None
    features: tuple[str, ...]
    """What it offloads, in the kernel's words."""
    up: bool
    """Whether it is switched on, as far as libvirt reports it."""


def own_interfaces(
    function: NodeDevice, devices: Sequence[NodeDevice], ports: Mapping[str, Port]
) -> list[Interface]:
    """Return the function's own interfaces among those below it, the first port first; none if it
    has none, for example while a guest has it. ``ports``: what the kernel says of each.
    """
    folder = PurePosixPath(text_of(function.element, "path")).name
    # For libvirt the interfaces of subfunctions and other devices within the function are below it
    # too.
    direct = [
        device
        for device in devices
        if PurePosixPath(text_of(device.element, "path")).parent.parent.name == folder
    ]
    found = {one.name: one for one in map(_interface, direct or devices) if one.name}
    return [found[name] for name in own_ports(map(partial(_port, ports), found))]


def _port(ports: Mapping[str, Port], name: str) -> Port:
    """Return the port of the interface; by the interface's name if the kernel was not asked about
    it, because libvirtd is on another host.
    """
    named = _PORT_NAME.search(name)
    return ports.get(name) or Port(name, named[0] if named else "")


def _interface(device: NodeDevice) -> Interface:
    link = device.capability.find("link")
    return Interface(
        name=text_of(device.capability, "interface"),
        mac_address=text_of(device.capability, "address") or None,
        features=tuple(
            sorted(
                {feature.get("name", "") for feature in device.capability.findall("feature")} - {""}
            )
        ),
        up=link is not None and link.get("state", "") not in _OFF,
    )


_ID = re.compile(r"0x([0-9a-f]{4})")
_CLASS = re.compile(r"0x([0-9a-f]{6})")


def read_pci(
    devices: NodeDeviceList, ports: Mapping[str, Port]
) -> PartialRead[tuple[PciDevice, ...]]:
    """Parse all PCI functions, ordered by address. A function that cannot be parsed becomes a
    fault; the others stay. ``ports``: what the kernel says of their interfaces, by name.
    """
    faults = list(devices.faults.get("pci", ()))
    found = read_each(
        devices.of_kind("pci"),
        lambda device: _function(device, devices, ports),
        attrgetter("address"),
        faults,
        lambda device, address: fault(device.what, f"another has its address {address}"),
    )
    return PartialRead(tuple(found[address] for address in sorted(found)), tuple(faults))


def address_of(device: NodeDevice) -> PciAddress:
    """Return the address of a PCI function.

    :raises DriverError: it has none, or its name says another.
    """
    address = pci_address(device.capability.findtext, device.what)
    named = from_name(device.name)
    if named is not None and named != address:
        raise fault(device.what, f"its address is {address}, against its name")
    return address


def numa_node_of(device: NodeDevice) -> int | None:
    """Return the cell of a PCI function; None if libvirt does not report it, because the firmware
    does not.

    :raises DriverError: the cell is no number.
    """
    numa = device.capability.find("numa")
    cell = -1 if numa is None else integer(numa.get("node"), f"{device.what}: numa")
    return None if cell < 0 else cell


def _function(device: NodeDevice, devices: NodeDeviceList, ports: Mapping[str, Port]) -> PciDevice:
    """Parse one PCI function.

    :raises DriverError: a part of it is garbled.
    """
    capability, what = device.capability, device.what
    physical, virtual = (
        capability.find(f"capability[@type='{name}']")
        for name in ("phys_function", "virt_functions")
    )
    addresses = (
        ()
        if virtual is None
        else tuple(
            pci_address(address.get, f"{what}: virt_functions")
            for address in virtual.findall("address")
        )
    )
    most = 0 if virtual is None else _most(virtual, len(addresses), what)
    interfaces = own_interfaces(device, devices.children_of(device.name, "net"), ports)
    first = interfaces[0] if interfaces else None
    return PciDevice(
        address=address_of(device),
        vendor_id=_id(capability, "vendor", what),
        product_id=_id(capability, "product", what),
        class_code=_class_code(capability, what),
        numa_node=numa_node_of(device),
        physical_function=None if physical is None else _physical_function(physical, what),
        virtual_functions=addresses if most else (),
        max_virtual_functions=most,
        kernel_driver=text_of(device.element, "driver/name") or None,
        netdev=None if first is None else first.name,
        other_netdevs=tuple(interface.name for interface in interfaces[1:]),
        mac_address=first.mac_address if most and first is not None else None,
        network_capabilities=first.features if physical is not None and first is not None else (),
        serial_number=device.serial_number,
        has_vdpa=physical is not None and bool(devices.children_of(device.name, "vdpa")),
        # libvirt does not report whether a program uses it by vfio-pci; for a guest, the guest's
        # own XML does.
        host_use=next(
            (
                f"interface {interface.name} is up"
                for interface in interfaces
                if physical is not None and interface.up
            ),
            None,
        ),
    )


def _most(virtual: Element, there: int, what: str) -> int:
    """Return how many VFs the function can have. Older libvirts list only the existing ones."""
    most = virtual.get("maxCount")
    return there if most is None else natural(most, f"{what}: maxCount")


def _physical_function(physical: Element, what: str) -> PciAddress:
    address = physical.find("address")
    if address is None:
        raise fault(what, "its physical function has no address")
    return pci_address(address.get, f"{what}: phys_function")


def _id(capability: Element, name: str, what: str) -> str:
    element = capability.find(name)
    text = "" if element is None else element.get("id", "")
    match = _ID.fullmatch(text.lower())
    if match is None:
        raise fault(what, f"its {name} id {text[:40]!r} is not 0x and 4 hexadecimal digits")
    return match[1]


def _class_code(capability: Element, what: str) -> int | None:
    """Return the class; None from older libvirts, which do not report it."""
    text = text_of(capability, "class")
    match = _CLASS.fullmatch(text.lower())
    if text and match is None:
        raise fault(what, f"its class {text[:40]!r} is not 0x and 6 hexadecimal digits")
    return int(match[1], 16) if match else None


# Newer libvirts append the parent to the uuid.
_NAME = re.compile(
    r"mdev_([0-9a-f]{8}_[0-9a-f]{4}_[0-9a-f]{4}_[0-9a-f]{4}_[0-9a-f]{12})(_.*)?", re.IGNORECASE
)
# The folder of devices without a bus, for which libvirt has no node devices.
_VIRTUAL = PurePosixPath("/sys/devices/virtual")
_CSS = ("cssid", "ssid", "devno")


def read_mdevs(
    devices: NodeDeviceList, owners: Mapping[str, ConsumerUuid]
) -> PartialRead[tuple[MdevParent, ...] | None]:
    """Return all parents, ordered by name, with their devices; None if there is none. A device that
    cannot be parsed becomes a fault; the rest stays.

    ``owners``: the guest that has each mediated device, by the uuid of the device.
    """
    faults = list(devices.faults.get("mdev", ()))
    below = _by_parent(devices, owners, faults)
    parents = read_each(
        [
            device
            for device in devices.by_name.values()
            if device.capability.find("capability[@type='mdev_types']") is not None
        ],
        lambda device: _parent(device, tuple(below.pop(device.name, ()))),
        attrgetter("name"),
        faults,
        _is_another,
    )
    for device, mdev in (pair for pairs in below.values() for pair in pairs):
        try:
            _put_virtual(parents, device, mdev)
        except DriverError as error:
            faults.append(error.message)
    found = tuple(parents[name] for name in sorted(parents))
    return PartialRead(found if found or faults else None, tuple(faults))


Pair = tuple[NodeDevice, Mdev]


def _by_parent(
    devices: NodeDeviceList, owners: Mapping[str, ConsumerUuid], faults: list[str]
) -> dict[str | None, list[Pair]]:
    """Return the existing mediated devices, by the node device of their parent."""

    def read(device: NodeDevice) -> Pair:
        uuid = _uuid(device)
        return device, Mdev(uuid, _type_of(device), owners.get(uuid))

    mdevs = devices.of_kind("mdev")
    found = read_each(mdevs, read, lambda pair: pair[1].uuid, faults, _is_another)
    below: dict[str | None, list[Pair]] = {}
    for pair in found.values():
        below.setdefault(pair[0].parent, []).append(pair)
    return below


def _is_another(device: NodeDevice, name: str) -> DriverError:
    return fault(device.what, f"another is {name} as well")


def _uuid(device: NodeDevice) -> str:
    match = _NAME.fullmatch(device.name)
    text = text_of(device.capability, "uuid") or (match[1].replace("_", "-") if match else "")
    if not is_uuid(text):
        raise fault(device.what, "neither its name nor its XML has a uuid")
    return normal_uuid(text)


def _type_of(device: NodeDevice) -> str:
    found = device.capability.find("type")
    name = "" if found is None else found.get("id", "")
    if not name:
        raise fault(device.what, "it has no type")
    return name


def _parent(device: NodeDevice, pairs: tuple[Pair, ...]) -> MdevParent:
    """Parse one parent with its types.

    :raises DriverError: a part of it is garbled.
    """
    bus, name = _place(device)
    available: dict[str, int] = {}
    for kind in device.capability.findall("capability[@type='mdev_types']/type"):
        if not kind.get("id"):
            raise fault(device.what, "one of its types has no id")
        available[kind.get("id", "")] = natural(
            kind.findtext("availableInstances"), f"{device.what}: availableInstances"
        )
    return MdevParent(
        name,
        bus,
        available,
        tuple(mdev for _, mdev in pairs),
        numa_node_of(device) if bus == PCI else None,
    )


def _place(device: NodeDevice) -> tuple[str, str]:
    """Return bus and name of a parent, as the kernel has them."""
    if device.kind == PCI:
        return PCI, str(address_of(device))
    if device.kind == "css":
        channel, subchannel, number_ = (
            number(device.capability.findtext(part), f"{device.what}: {part}", 0xFFFF)
            for part in _CSS
        )
        return "css", f"{channel:x}.{subchannel:x}.{number_:04x}"
    bus, _, name = device.name.partition("_")
    if not name:
        raise fault(device.what, "its name on its bus is unknown")
    return bus, name


def _put_virtual(parents: dict[str, MdevParent], device: NodeDevice, mdev: Mdev) -> None:
    """Add a device whose parent libvirt does not list. The device shows its parent, but not how
    many more could be created.

    :raises DriverError: the parent is on a bus, so that it should have been listed.
    """
    path = PurePosixPath(text_of(device.element, "path"))
    if path.parent.parent.parent != _VIRTUAL or ".." in path.parts:
        raise fault(
            device.what, f"its parent {device.parent} is not among the devices that can be cut"
        )
    name, bus = path.parent.name, path.parent.parent.name
    before = parents.get(name, MdevParent(name, bus))
    parents[name] = MdevParent(name, bus, before.available, (*before.mdevs, mdev), before.numa_node)
