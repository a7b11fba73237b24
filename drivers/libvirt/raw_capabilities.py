"""The raw answers of libvirtd and the kernel: the border between the modules that query and the
modules that interpret.

Only the types are checked here. Texts are untrusted: libvirt is known to send malformed XML.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.model.domain import DomainState
from agent.model.encryption import Technique
from agent.model.facts import Section


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
    faults: Mapping[Section, tuple[str, ...]] = field(default_factory=dict)
    """By section of the facts: what could not be asked, one line each."""
