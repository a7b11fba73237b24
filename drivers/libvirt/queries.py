"""Derives the further queries from libvirt's capabilities: which CPUs to expand, which machines to
describe. Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree

from drivers.libvirt.capabilities import WHAT
from drivers.libvirt.settings import LibvirtSettings
from drivers.libvirt.xml import Element, child, parse, text_of

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
