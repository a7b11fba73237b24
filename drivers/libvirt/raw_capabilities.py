"""The raw answers of libvirtd and the kernel, the border between the modules that query and the
modules that interpret; and the further queries that follow from libvirt's capabilities;
and the node devices, parsed once.

Only the types are checked here. Texts are untrusted: libvirt is known to send malformed XML.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from xml.etree import ElementTree

from agent.errors import DriverError
from agent.model.devices import Port, Technique
from agent.model.facts import DomainState, Section
from drivers.libvirt.capabilities import WHAT
from drivers.libvirt.settings import LibvirtSettings
from drivers.libvirt.xml import Element, child, fault, parse, text_of


@dataclass(frozen=True, slots=True)
class DeviceAnswer:
    """A node device as listed."""

    name: str
    parent: str | None
    """The name of another device; None if it has none."""
    xml: str
    """Its ``XMLDesc(0)``."""


@dataclass(frozen=True, slots=True)
class DomainAnswer:
    """A guest as listed."""

    uuid: str
    name: str
    state: DomainState
    xml: str
    """Its ``XMLDesc(0)``."""


@dataclass(frozen=True, slots=True)
class KernelAnswer:
    """What the kernel reports about encrypted guests."""

    switches: Mapping[Technique, str] = field(default_factory=dict)
    """The text of each technique's parameter, where the kernel has it."""
    capacities: str | None = None
    """The text of ``misc.capacity``; None without that controller."""


@dataclass(frozen=True, slots=True)
class KernelCpus:
    """What the kernel reports about CPUs where libvirt does not."""

    cells: Mapping[int, int] = field(default_factory=dict)
    """The cell of each CPU that has one."""
    siblings: Mapping[int, str] = field(default_factory=dict)
    """The text of each CPU's list of siblings."""
    packages: Mapping[int, str] = field(default_factory=dict)
    """The text of each CPU's package id."""
    memory_mib: int = 0
    """Memory of the whole host, 0 if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawCapabilities:
    """All answers of one moment; None for what the backend cannot tell at all (the test driver has
    no domain capabilities).
    """

    libvirt_version: int
    """major * 1 000 000 + minor * 1 000 + release."""
    hypervisor_version: int
    """major * 1 000 000 + minor * 1 000 + release."""
    hypervisor_type: str
    info: tuple[str, int, int, int, int, int, int, int] | None
    """``getInfo``: model, memory in MiB, CPUs, MHz, nodes, sockets, cores, threads."""
    online: frozenset[int] | None
    """The CPUs that are online now."""
    present: frozenset[int] = frozenset()
    """The CPUs that exist."""
    capabilities: str
    """The XML of ``getCapabilities``."""
    expanded: tuple[str, ...] = ()
    """``baselineCPU`` with the features written out, one ``<cpu>`` each; empty where it is not
    supported.
    """
    domain_capabilities: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """By architecture and machine."""
    devices: tuple[DeviceAnswer, ...] | None = None
    """Devices of the capabilities pci, net, vdpa, mdev_types and mdev, all of one listing."""
    domains: tuple[DomainAnswer, ...] | None = None
    disk_gib: int | None = None
    """GiB, rounded down."""
    disk_shared: bool = False
    """The storage is filled by other hosts too."""
    image_cache_gib: int = 0
    """GiB of the disk that cached images take."""
    kernel: KernelAnswer = KernelAnswer()
    kernel_cpus: KernelCpus = KernelCpus()
    ports: Mapping[str, Port] = field(default_factory=dict)
    """What the kernel says of the network interfaces of devices, by name."""
    faults: Mapping[Section, tuple[str, ...]] = field(default_factory=dict)
    """By section of the facts: what could not be asked, one line each."""


# The machine types that guests get by default; an emulator has dozens of others, which differ in
# their age.
_CANONICAL = ("pc", "q35")
# The CPU that QEMU gives guests without a CPU model.
_DEFAULT_MODEL = {"x86_64": "qemu64", "i686": "qemu32"}
# libvirt cannot expand CPUs of these architectures.
_NOT_EXPANDED = ("aarch64",)


@dataclass(frozen=True, slots=True)
class EmulatedMachine:
    """An emulated machine."""

    architecture: str
    emulator: str
    name: str | None
    """None: the emulator's default."""


@dataclass(frozen=True, slots=True)
class CapabilityQueries:
    """What to ask libvirt for."""

    cpus: tuple[str, ...]
    """An XML ``<cpu>`` each."""
    machines: tuple[EmulatedMachine, ...]


def host_architecture(capabilities: str) -> str:
    """Return libvirt's name of the host's architecture.

    :raises DriverError: the capabilities cannot be parsed.
    """
    return text_of(child(parse(capabilities, WHAT, "capabilities"), "host/cpu", WHAT), "arch")


def capability_queries(capabilities: str, settings: LibvirtSettings) -> CapabilityQueries:
    """Return what to ask for on the host with these capabilities.

    :raises DriverError: they cannot be parsed.
    """
    root = parse(capabilities, WHAT, "capabilities")
    host = child(root, "host/cpu", WHAT)
    machines = (
        machine for guest in root.findall("guest") for machine in _machines(guest, settings)
    )
    return CapabilityQueries(tuple(_cpus(host, settings)), tuple(dict.fromkeys(machines)))


def _cpus(host: Element, settings: LibvirtSettings) -> Iterator[str]:
    """Yield the CPU to expand for each CPU that guests may get."""
    architecture = text_of(host, "arch")
    if architecture in _NOT_EXPANDED:
        return
    if settings.cpu_mode == "host":
        # A CPU that libvirt could not identify has no model, and cannot be expanded.
        if text_of(host, "model"):
            yield ElementTree.tostring(host, encoding="unicode")
    elif settings.cpu_mode == "custom":
        yield from (_cpu(architecture, model) for model in settings.cpu_models)
    elif architecture in _DEFAULT_MODEL:
        yield _cpu(architecture, _DEFAULT_MODEL[architecture])


def _cpu(architecture: str, model: str) -> str:
    cpu = ElementTree.Element("cpu")
    ElementTree.SubElement(cpu, "arch").text = architecture
    ElementTree.SubElement(cpu, "model").text = model
    return ElementTree.tostring(cpu, encoding="unicode")


def _machines(guest: Element, settings: LibvirtSettings) -> Iterator[EmulatedMachine]:
    """Yield the machines of one guest architecture, if the emulator has guests of the
    virtualization type: KVM has only the host's own architecture.
    """
    arch = guest.find("arch")
    if (
        arch is None
        or text_of(guest, "os_type") != "hvm"
        or settings.virt_type not in [domain.get("type") for domain in arch.findall("domain")]
    ):
        return
    architecture, emulator = arch.get("name", ""), text_of(arch, "emulator")
    if not architecture or not emulator:
        return
    yield EmulatedMachine(architecture, emulator, None)
    names = {(machine.text or "").strip() for machine in arch.findall("machine")}
    names_to_ask = (*_CANONICAL, *(name for of, name in settings.machines if of == architecture))
    yield from (
        EmulatedMachine(architecture, emulator, name) for name in names_to_ask if name in names
    )


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
