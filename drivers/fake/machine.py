"""A machine that is described instead of found: its sections, and the providers that are given outright."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.model.assignable_unit import AssignableUnit
from agent.model.devices import PciDevice
from agent.model.domain import Domain
from agent.model.encryption import EncryptionFacts
from agent.model.facts import CpuFacts, HostFacts, Section
from agent.model.mdev import MdevParent
from agent.model.topology import Topology
from drivers.fake.entry import ProviderEntry

MODEL, VENDOR = "Nehalem", "Intel"
FEATURES = frozenset({"sse", "sse2", "ssse3", "sse4_1", "sse4_2", "popcnt", "cx16", "lahf_lm", "nx", "lm"})


@dataclass(frozen=True, slots=True)
class DescribedFacts(HostFacts):
    """Facts that also say which providers their node has beyond those that the core makes, parents first."""

    providers: tuple[ProviderEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a fake node has. The sections mean what they mean in :class:`agent.model.facts.HostFacts`."""

    hypervisor_type: str = "fake"
    hypervisor_version: int = 1000
    cpu: CpuFacts | None = None
    memory_mib: int | None = None
    disk_gib: int | None = None
    numa: Topology | None = None
    pci: tuple[PciDevice, ...] | None = None
    mdev: tuple[MdevParent, ...] | None = None
    encryption: EncryptionFacts | None = None
    domains: tuple[Domain, ...] | None = None
    units: tuple[AssignableUnit, ...] | None = None
    incomplete: Mapping[Section, str] = field(default_factory=dict)
    providers: tuple[ProviderEntry, ...] = ()

    def facts(self, name: str) -> DescribedFacts:
        """A snapshot of the machine as the node called ``name``."""
        return DescribedFacts(
            name=name,
            taken_at=time.time(),
            hypervisor_type=self.hypervisor_type,
            hypervisor_version=self.hypervisor_version,
            cpu=self.cpu,
            memory_mib=self.memory_mib,
            disk_gib=self.disk_gib,
            numa=self.numa,
            pci=self.pci,
            mdev=self.mdev,
            encryption=self.encryption,
            domains=self.domains,
            units=self.units,
            incomplete=self.incomplete,
            providers=self.providers,
        )


def processor(online: frozenset[int]) -> CpuFacts:
    """The processor of every fake host, with these CPUs."""
    return CpuFacts(online, architecture="x86_64", model=MODEL, vendor=VENDOR, features=FEATURES)


def plain(vcpus: int, memory_mib: int, disk_gib: int) -> Machine:
    """A machine without NUMA cells and devices."""
    return Machine(cpu=processor(frozenset(range(vcpus))), memory_mib=memory_mib, disk_gib=disk_gib)
