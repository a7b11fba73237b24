"""The node devices of the host, parsed once and indexed by name and by parent."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agent.errors import DriverError
from agent.model.facts import Section
from drivers.libvirt.raw_capabilities import DeviceAnswer
from drivers.libvirt.xml import Element, fault, parse, text_of

_STARTS = ("<capability type='vpd'>", '<capability type="vpd">')
_END = "</capability>"
_LONGEST = 255


def serial_number(capability: Element) -> str | None:
    """Return the serial number in a device's vital product data; None if there is none, or none
    that is plausible.
    """
    vpd = capability.find("capability[@type='vpd']")
    return None if vpd is None else _sound(text_of(vpd, "fields/serial_number"))


def without_data(xml: str) -> tuple[str, str | None]:
    """Return the XML of a device without its vital product data, because libvirt may write these
    malformed; and the serial number, if it can be found.
    """
    start = next((place for mark in _STARTS if (place := xml.find(mark)) >= 0), -1)
    end = xml.find(_END, start)
    if start < 0 or end < 0:
        return xml, None
    _, found, rest = xml[start:end].partition("<serial_number>")
    serial, closed, _ = rest.partition("</serial_number>")
    return xml[:start] + xml[end + len(_END) :], _sound(serial) if found and closed else None


def _sound(text: str) -> str | None:
    text = text.strip()
    return text if 0 < len(text) <= _LONGEST and text.isascii() and text.isprintable() else None


# By kind of device: the sections of the facts that may lack a device that cannot be parsed. A PCI
# function may be the parent of mediated devices.
_SECTIONS: Mapping[str, tuple[Section, ...]] = {
    "pci": ("pci", "mdev"),
    "net": ("pci",),
    "vdpa": ("pci",),
    "mdev": ("mdev",),
}
_ANY: tuple[Section, ...] = ("pci", "mdev")


@dataclass(frozen=True, slots=True)
class NodeDevice:
    """One node device."""

    name: str
    parent: str | None
    kind: str
    """The type of its first capability."""
    element: Element
    capability: Element
    """Its first capability."""
    serial_number: str | None = None
    """From its vital product data."""

    @property
    def what(self) -> str:
        """How errors call the device."""
        return f"device {self.name}"


@dataclass(frozen=True, slots=True)
class NodeDeviceList:
    """All devices that could be parsed, in the order of the listing."""

    by_name: Mapping[str, NodeDevice] = field(default_factory=dict)
    children: Mapping[str, tuple[NodeDevice, ...]] = field(default_factory=dict)
    faults: Mapping[Section, tuple[str, ...]] = field(default_factory=dict)
    """By section of the facts: errors of the devices that could not be parsed."""

    def of_kind(self, kind: str) -> Iterable[NodeDevice]:
        """Return the devices whose first capability is of that kind."""
        return (device for device in self.by_name.values() if device.kind == kind)

    def children_of(self, name: str, kind: str) -> list[NodeDevice]:
        """Return the devices of a kind below another device."""
        return [child for child in self.children.get(name, ()) if child.kind == kind]


def read_node_devices(answers: Iterable[DeviceAnswer]) -> NodeDeviceList:
    """Parse and index what was listed. A device that cannot be parsed becomes a fault of each
    section of the facts that may lack it.
    """
    by_name: dict[str, NodeDevice] = {}
    children: dict[str, list[NodeDevice]] = {}
    faults: dict[Section, list[str]] = {}
    for answer in answers:
        try:
            device = _device(answer)
            if device.name in by_name:
                raise fault(device.what, "listed twice")
        except DriverError as error:
            for section in _SECTIONS.get(answer.name.partition("_")[0], _ANY):
                faults.setdefault(section, []).append(error.message)
            continue
        by_name[device.name] = device
        if device.parent is not None:
            children.setdefault(device.parent, []).append(device)
    return NodeDeviceList(
        by_name,
        {name: tuple(found) for name, found in children.items()},
        {section: tuple(found) for section, found in faults.items()},
    )


def _device(answer: DeviceAnswer) -> NodeDevice:
    """Parse one node device; without its vital product data, if these make the XML malformed.

    :raises DriverError: its XML is garbled, or contradicts its name.
    """
    what = f"device {answer.name}"
    serial: str | None = None
    try:
        element = parse(answer.xml, what, "device")
    except DriverError as error:
        rest, serial = without_data(answer.xml)
        if rest == answer.xml:
            raise
        try:
            element = parse(rest, what, "device")
        except DriverError:
            # The first error is about the XML that was sent.
            raise error from None
    capability = element.find("capability")
    kind = None if capability is None else capability.get("type")
    if capability is None or not kind:
        raise fault(what, "no capability")
    called = answer.name.partition("_")[0]
    if called in _SECTIONS and called != kind:
        raise fault(what, f"it is {kind[:40]!r}, against its name")
    return NodeDevice(
        answer.name, answer.parent, kind, element, capability, serial or serial_number(capability)
    )
