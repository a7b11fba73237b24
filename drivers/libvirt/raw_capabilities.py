"""What libvirtd and the kernel said, as they said it: the border between those who ask and those
who understand.

Nothing here is checked but its type. Texts are untrusted: libvirt is known to send malformed XML.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.model.domain import DomainState
from agent.model.encryption import Technique
from agent.model.facts import Section


@dataclass(frozen=True, slots=True)
class DeviceAnswer:
    """A node device as the listing names it. ``parent``: the name of another, None if it has none;
    ``xml``: its ``XMLDesc(0)``.
    """

    name: str
    parent: str | None
    xml: str


@dataclass(frozen=True, slots=True)
class DomainAnswer:
    """A guest: what it is called, what it does now, and its ``XMLDesc``."""

    uuid: str
    name: str
    state: DomainState
    xml: str


@dataclass(frozen=True, slots=True)
class KernelAnswer:
    """Of the techniques by which a kernel has encrypted guests.

    ``switches``: the text of each technique's parameter, where the kernel has it. ``capacities``:
    the text of ``misc.capacity``, None where there is no such controller.
    """

    switches: Mapping[Technique, str] = field(default_factory=dict)
    capacities: str | None = None


@dataclass(frozen=True, slots=True)
class KernelCpus:
    """What the kernel says of CPUs where libvirt does not: the cell of each that has one, and the
    text of its siblings and of its package.

    ``memory_mib``: of the whole host, 0 if it does not say.
    """

    cells: Mapping[int, int] = field(default_factory=dict)
    siblings: Mapping[int, str] = field(default_factory=dict)
    packages: Mapping[int, str] = field(default_factory=dict)
    memory_mib: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RawCapabilities:
    """All answers of one moment; None for what the backend cannot tell at all (the test driver has
    no domain capabilities).

    ``libvirt_version`` and ``hypervisor_version`` are major * 1 000 000 + minor * 1 000 + release.
    ``info`` is ``getInfo``: model, memory in MiB, CPUs, MHz, nodes, sockets, cores, threads.
    ``online``: the CPUs that run now; ``present``: those that exist. ``expanded``: ``baselineCPU``
    with the features written out, one ``<cpu>`` each; empty where it is not supported.
    ``domain_capabilities``: by architecture and machine. ``devices``: of the capabilities pci, net,
    vdpa, mdev_types and mdev, all of one listing. ``disk_gib``: GiB, rounded down; ``disk_shared``:
    of a storage that others fill too; ``image_cache_gib``: GiB of it that cached images take.
    ``faults``: what could not be asked, one line each, by the section of the facts that lacks it.
    """

    libvirt_version: int
    hypervisor_version: int
    hypervisor_type: str
    hostname: str
    info: tuple[str, int, int, int, int, int, int, int] | None
    online: frozenset[int] | None
    present: frozenset[int] = frozenset()
    capabilities: str
    expanded: tuple[str, ...] = ()
    domain_capabilities: Mapping[tuple[str, str], str] = field(default_factory=dict)
    devices: tuple[DeviceAnswer, ...] | None = None
    domains: tuple[DomainAnswer, ...] | None = None
    disk_gib: int | None = None
    disk_shared: bool = False
    image_cache_gib: int = 0
    kernel: KernelAnswer = KernelAnswer()
    kernel_cpus: KernelCpus = KernelCpus()
    faults: Mapping[Section, tuple[str, ...]] = field(default_factory=dict)
