"""Derives the facts of a host from libvirt's raw answers. Pure.

Where two sources give the same figure, always the same one is used: memory is that of ``getInfo``,
as in nova's reports, while each cell has its own figure; the online CPUs are those of
``getCPUMap``; the features of CPUs are those that ``baselineCPU`` wrote out. On a kernel where
libvirt lacks one of the first two, which does not change while it runs, memory is the sum of the
cells, and the online CPUs are those whose place the capabilities give.
"""

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

import os_traits

from agent.errors import DriverError
from agent.model.devices import AssignableUnit
from agent.model.facts import (
    Cell,
    CpuFacts,
    HostFacts,
    PartialRead,
    Section,
    Topology,
    summarize_faults,
)
from drivers.libvirt.capabilities import Capabilities, add_sleeping_cpus, read_capabilities
from drivers.libvirt.domain import function_aliases, read_domains
from drivers.libvirt.domain_capabilities import Emulator, read_emulators, read_encryption
from drivers.libvirt.pci import read_mdevs, read_pci
from drivers.libvirt.raw_capabilities import RawCapabilities, read_node_devices
from drivers.libvirt.traits import (
    architecture_traits,
    emulator_traits,
    expanded_features,
    feature_traits,
    tpm_secret_traits,
    with_flags,
)
from drivers.libvirt.xml import NumberLists

QEMU = "QEMU"
NO_CPU = "getCPUMap: no CPU is online"

_OF_CAPABILITIES: tuple[Section, ...] = ("cpu", "numa", "traits")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Faults:
    """What could not be asked or interpreted, by section of the facts."""

    found: dict[Section, dict[str, None]] = field(default_factory=dict)

    def add(self, section: Section, faults: Iterable[str]) -> None:
        """Add faults of one section, each once."""
        self.found.setdefault(section, {}).update(dict.fromkeys(faults))

    def incomplete(self) -> dict[Section, str]:
        """Return one line for each section that has faults."""
        return {
            section: summarize_faults(tuple(faults))
            for section, faults in self.found.items()
            if faults
        }


def facts_of(
    answers: RawCapabilities,
    name: str,
    taken_at: float,
    *,
    cpu_flags: Iterable[str],
    vtpm: bool,
    tpm_secrets: Collection[str],
    file_backed_memory_mib: int,
    power_managed_cpus: frozenset[int] = frozenset(),
    before: Topology | None = None,
    units: tuple[AssignableUnit, ...] = (),
) -> HostFacts:
    """Return the facts of the host, under the name of its node. An object that cannot be
    interpreted is left out and named as a fault; everything else stays.

    - ``cpu_flags``: the operator's, see :func:`with_flags`.
    - ``vtpm``: guests may have emulated TPMs.
    - ``tpm_secrets``: where the secrets of TPMs may be kept.
    - ``file_backed_memory_mib``: what guests may have instead of the host's memory, in MiB; 0 for
      the host's memory.
    - ``power_managed_cpus``: CPUs that are counted even while they are offline.
    - ``before``: the topology as last seen.
    - ``units``: the namespaces of persistent memory.
    """
    faults = Faults()
    for section, messages in answers.faults.items():
        faults.add(section, messages)
    capabilities = _capabilities(answers, before, faults)
    sleeping = power_managed_cpus & answers.present - capabilities.online
    capabilities = _with_sleeping_cpus(capabilities, sleeping, answers, before)
    topology = capabilities.topology.value
    devices = read_node_devices(answers.devices or ())
    domains = read_domains(
        answers.domains or (),
        replace(function_aliases(devices), known=answers.devices is not None),
        topology,
        units,
    )
    faults.add("domains", domains.faults)
    emulators = read_emulators(answers.domain_capabilities)
    encryption = read_encryption(answers.kernel, emulators.value)
    # Without libvirt's answer about SEV, the kernel's alone would be used.
    faults.add(
        "encryption", (*encryption.faults, *emulators.faults, *answers.faults.get("traits", ()))
    )
    features = _features(answers, capabilities, cpu_flags, faults)
    faults.add("traits", emulators.faults)
    return HostFacts(
        name=name,
        taken_at=taken_at,
        hypervisor_type=answers.hypervisor_type,
        hypervisor_version=answers.hypervisor_version,
        cpu=CpuFacts(
            capabilities.online,
            capabilities.architecture,
            capabilities.model,
            capabilities.vendor,
            features,
            sleeping,
        ),
        memory_mib=_memory_mib(answers, topology, file_backed_memory_mib, faults),
        disk_gib=answers.disk_gib,
        disk_shared=answers.disk_shared,
        image_cache_gib=answers.image_cache_gib,
        numa=topology,
        pci=None
        if answers.devices is None
        else _value_of(read_pci(devices, answers.ports), "pci", faults),
        mdev=None
        if answers.devices is None
        else _value_of(read_mdevs(devices, domains.owners), "mdev", faults),
        encryption=encryption.value,
        units=units,
        domains=None if answers.domains is None else domains.value,
        traits={
            trait: has
            for trait, has in (
                tpm_secret_traits(tpm_secrets)
                | _traits(answers, capabilities, features, emulators.value, vtpm=vtpm)
            ).items()
            # If the section is incomplete, a missing one may be unknown.
            if has or not faults.found.get("traits")
        },
        incomplete=faults.incomplete(),
    )


def _with_sleeping_cpus(
    capabilities: Capabilities,
    sleeping: frozenset[int],
    answers: RawCapabilities,
    before: Topology | None,
) -> Capabilities:
    """Return ``capabilities`` with the offline CPUs that are counted added to the topology."""
    topology = capabilities.topology
    if topology.value is None:
        return capabilities
    with_sleeping = add_sleeping_cpus(
        topology.value, capabilities.online, sleeping, answers.kernel_cpus.cells, before
    )
    return replace(capabilities, topology=PartialRead(with_sleeping, topology.faults))


def _value_of(read: PartialRead[T], section: Section, faults: Faults) -> T:
    """Return the value that was read, and note its faults."""
    faults.add(section, read.faults)
    return read.value


def _capabilities(
    answers: RawCapabilities, before: Topology | None, faults: Faults
) -> Capabilities:
    """Return what the capabilities say of the host. If they cannot be parsed nothing is known, not
    even the kind of its CPUs.
    """
    try:
        found = read_capabilities(answers.capabilities, answers.online)
    except DriverError as error:
        for section in _OF_CAPABILITIES:
            faults.add(section, (error.message,))
        return Capabilities(
            "", "", "", frozenset(), PartialRead(None), answers.online or frozenset()
        )
    cells = [*found.topology.faults]
    if found.topology.value is None and answers.hypervisor_type == QEMU:
        # If libvirt fails to find the cells it lists none, not even the one cell of a host without
        # NUMA.
        if before is not None and len(before.cells) > 1:
            cells.append("capabilities: no NUMA cell is listed any more")
        else:
            found = replace(
                found, topology=PartialRead(Topology((_whole_host(answers, found.online),)))
            )
    if not found.online:
        faults.add("cpu", (NO_CPU,))
        cells.append(NO_CPU)
    # Only the cells show whether cores have several threads.
    for section in ("numa", "traits"):
        faults.add(section, cells)
    return found


def _whole_host(answers: RawCapabilities, online: frozenset[int]) -> Cell:
    """Return the one cell of a host for which libvirt lists none: all CPUs and all memory, with the
    cores that the kernel reports.
    """
    kernel, lists = answers.kernel_cpus, NumberLists()
    cores: list[frozenset[int]] = []
    seen: set[int] = set()
    for cpu in sorted(online):
        if cpu in seen:
            continue
        core = frozenset({cpu})
        # A list of siblings that is garbled or contradicts another makes the CPU a core of its own,
        # like a CPU without such a list.
        with suppress(DriverError):
            text = kernel.siblings.get(cpu, str(cpu))
            siblings = lists.read(text, f"siblings of CPU {cpu}") & online
            core = siblings if cpu in siblings and not siblings & seen else core
        seen |= core
        cores.append(core)
    packages = {
        text
        for cpu, text in kernel.packages.items()
        if cpu in online and text.isascii() and text.isdecimal() and len(text) <= 5
    }
    return Cell(
        0,
        online,
        _known_memory_mib(answers),
        distances={0: 10},
        siblings=tuple(cores),
        sockets=frozenset(map(int, packages)),
    )


def _known_memory_mib(answers: RawCapabilities) -> int:
    """Return the memory of ``getInfo``; if libvirt found none, the kernel's."""
    return (answers.info[1] if answers.info is not None else 0) or answers.kernel_cpus.memory_mib


def _features(
    answers: RawCapabilities, capabilities: Capabilities, cpu_flags: Iterable[str], faults: Faults
) -> frozenset[str]:
    """Return the features of the CPU that guests get. Where libvirt does not expand it, the
    features that the host has beyond its model.
    """
    try:
        features = (
            expanded_features(answers.expanded) if answers.expanded else capabilities.features
        )
    except DriverError as error:
        faults.add("traits", (error.message,))
        features = capabilities.features
    return with_flags(features, cpu_flags)


def _memory_mib(
    answers: RawCapabilities, topology: Topology | None, file_backed_memory_mib: int, faults: Faults
) -> int:
    cells = topology.memory_mib if topology is not None and "numa" not in faults.incomplete() else 0
    memory = file_backed_memory_mib or (
        cells if answers.info is None else _known_memory_mib(answers)
    )
    if memory <= 0:
        faults.add(
            "memory",
            (f"{'the cells' if answers.info is None else 'getInfo'}: {memory} MiB of memory",),
        )
    return max(memory, 0)


def _traits(
    answers: RawCapabilities,
    capabilities: Capabilities,
    features: frozenset[str],
    emulators: tuple[Emulator, ...],
    *,
    vtpm: bool,
) -> dict[str, bool]:
    """Return the traits of CPUs, architecture and emulators."""
    traits = feature_traits(capabilities.architecture, features, is_complete=bool(answers.expanded))
    traits |= architecture_traits(capabilities.architecture)
    if capabilities.topology.value is not None:
        traits[os_traits.HW_CPU_HYPERTHREADING] = capabilities.topology.value.smt
    if emulators:
        traits |= emulator_traits(
            emulators, answers.libvirt_version, answers.hypervisor_version, vtpm=vtpm
        )
    return traits
