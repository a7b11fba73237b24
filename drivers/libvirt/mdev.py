"""The mediated devices of the host and their parents, from its node devices."""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from agent.errors import DriverError
from agent.model.facts import PartialRead
from agent.model.mdev import PCI, Mdev, MdevParent
from agent.model.names import ConsumerUuid, is_uuid, normal_uuid
from drivers.libvirt.node_devices import NodeDevice, NodeDeviceList
from drivers.libvirt.pci import address_of, numa_node_of
from drivers.libvirt.xml import Element, fault, natural, number, text_of

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
    parents: dict[str, MdevParent] = {}
    for device in devices.by_name.values():
        types = device.capability.find("capability[@type='mdev_types']")
        if types is None:
            continue
        try:
            parent = _parent(device, types, tuple(below.pop(device.name, ())))
            if parent.name in parents:
                raise fault(device.what, f"another is {parent.name} as well")
            parents[parent.name] = parent
        except DriverError as error:
            faults.append(error.message)
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
    below: dict[str | None, list[Pair]] = {}
    seen: set[str] = set()
    for device in devices.of_kind("mdev"):
        try:
            uuid = _uuid(device)
            if uuid in seen:
                raise fault(device.what, f"another is {uuid} as well")
            seen.add(uuid)
            below.setdefault(device.parent, []).append(
                (device, Mdev(uuid, _type_of(device), owners.get(uuid)))
            )
        except DriverError as error:
            faults.append(error.message)
    return below


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


def _parent(device: NodeDevice, types: Element, pairs: tuple[Pair, ...]) -> MdevParent:
    """Parse one parent with its types.

    :raises DriverError: a part of it is garbled.
    """
    bus, name = _place(device)
    available: dict[str, int] = {}
    for kind in types.findall("type"):
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
