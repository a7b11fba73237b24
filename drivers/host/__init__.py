"""The bare Linux host: CPUs, NUMA cells, memory, PCI and mediated devices, encryption and disk from
/sys and psutil, without a hypervisor. One node, the
machine itself or a recording of one.
"""

import platform
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from oslo_config import cfg

from agent.driver.interface import HostContext, kernel_warnings, read_total_gib
from agent.errors import ConfigError, DriverError, NotReady
from agent.model.devices import (
    CAPACITIES,
    SWITCHES,
    EncryptionFacts,
    Mdev,
    MdevParent,
    contexts,
    is_on,
    parent_name,
    parse_capacities,
)
from agent.model.facts import CpuFacts, HostFacts, PartialRead, Section, summarize_faults
from agent.model.names import is_uuid, printable
from drivers.host import cpu, pci
from drivers.host.sysfs import Sysfs, read_entries


class HostDriver:
    """The bare Linux host below ``[host] sysfs_root``.

    One node, called as ``[DEFAULT] host``, with the identity of the host as its uuid. What a
    recording lacks is not taken from this machine: no kernel version, architecture, model or
    features. Only the disk is this machine's.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._root = Path(conf.host.sysfs_root)
        self._instances = Path(conf.instances_path).absolute()
        self._host: HostContext | None = None
        self._kind = CpuFacts(online=frozenset(), architecture="")

    def check(self, host: str) -> None:  # noqa: ARG002 -- every host may have a sysfs
        """Check that there is a sysfs to read; see
        :class:`agent.driver.interface.ChecksConfiguration`.
        """
        _open_sysfs(self._root)

    def option_warnings(self) -> Sequence[str]:
        """Return warnings; see :class:`agent.driver.interface.WarnsOfOptions`."""
        return kernel_warnings(self._root)

    def start(self, host: HostContext) -> None:
        """Check the sysfs and read the kind of CPU; see :class:`agent.driver.interface.Driver`."""
        sysfs = _open_sysfs(self._root)
        if sysfs.is_live:
            # Read once, because the kind of CPU stays until the machine restarts, and some kernels
            # take long to report it.
            self._kind = cpu.read_kind()
        self._host = host

    def stop(self) -> None:
        """Forget the host; nothing is held open."""
        self._host = None

    def nodes(self, refresh: bool = False) -> Mapping[str, str]:  # noqa: ARG002 -- the host is always the same one
        """Return the host itself."""
        host = self._require_start()
        return {host.identity: host.name}

    def facts(self, name: str) -> HostFacts:
        """Return the host's facts as of now; see :class:`agent.driver.interface.Driver`."""
        host = self._require_start()
        if name != host.name:
            raise DriverError(
                f"driver host: no node '{printable(name)}'",
                f"the only node is {host.name!r}, named by [DEFAULT] host",
            )
        try:
            sysfs = _open_sysfs(self._root)
        except ConfigError as error:
            raise NotReady(error.message, error.remedy) from error
        online = cpu.read_online(sysfs)
        topology = cpu.read_topology(sysfs, online.value)
        total = cpu.read_memory_mib(sysfs, topology)
        devices, parents, techniques = (
            pci.read_devices(sysfs),
            read_parents(sysfs),
            read_encryption(sysfs),
        )
        size = self._disk()
        faults: Mapping[Section, tuple[str, ...]] = {
            "cpu": online.faults,
            "memory": total.faults,
            "disk": size.faults,
            # Siblings and sockets are those of the online CPUs.
            "numa": (*topology.faults, *online.faults),
            "pci": devices.faults,
            "mdev": parents.faults,
            "encryption": techniques.faults,
        }
        return HostFacts(
            name=name,
            taken_at=time.time(),
            hypervisor_type="host",
            hypervisor_version=_version(platform.release()) if sysfs.is_live else 0,
            cpu=replace(self._kind, online=online.value),
            memory_mib=total.value,
            disk_gib=size.value,
            numa=topology.value,
            pci=devices.value,
            mdev=parents.value,
            encryption=techniques.value,
            incomplete={
                section: summarize_faults(found) for section, found in faults.items() if found
            },
        )

    def is_node_deleted(self, name: str) -> bool:  # noqa: ARG002 -- a host knows of no other host
        """Return False: the host that could answer exists, and it knows of no other host."""
        return False

    def _require_start(self) -> HostContext:
        if self._host is None:
            raise NotReady("driver host: not started")
        return self._host

    def _disk(self) -> PartialRead[int | None]:
        try:
            return PartialRead(read_total_gib(self._instances))
        except DriverError as error:
            return PartialRead(None, (f"[DEFAULT] instances_path = {error.message}",))


def _open_sysfs(root: Path) -> Sysfs:
    """Return the sysfs below ``root``.

    :raises ConfigError: there is none, or it is no sysfs.
    """
    remedy = (
        "[host] sysfs_root must name a folder that stands for /sys: it has devices/system/cpu in it"
    )
    option = printable(f"[host] sysfs_root = {root}")
    try:
        sysfs = Sysfs(root)
        if not sysfs.is_folder(""):
            raise ConfigError(f"{option}: no such folder", remedy)
        if not cpu.present_cpus(sysfs):
            raise ConfigError(
                f"{option}: it is not a sysfs, no CPU is below {cpu.CPUS_FOLDER}", remedy
            )
    except DriverError as error:
        raise ConfigError(f"{option}: {error.message}", remedy) from error
    return sysfs


def _version(release: str) -> int:
    """Return ``6.1.20-amd64`` as 6001020; 0 for a release that is not of this form."""
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", release)
    major, minor, patch = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    return major * 1_000_000 + minor * 1_000 + patch


# --- mediated devices and encryption --------------------------------------------------------------

MDEV_FOLDER = "class/mdev_bus"


def read_parents(sysfs: Sysfs) -> PartialRead[tuple[MdevParent, ...] | None]:
    """Return all parents, ordered by name; None on a kernel without mediated devices. A parent that
    cannot be read becomes a fault; the others stay.
    """
    try:
        if not sysfs.is_folder(MDEV_FOLDER):
            return PartialRead(None)
    except DriverError as error:
        return PartialRead((), (error.message,))
    parents = read_entries(sysfs, MDEV_FOLDER, _parent)
    return PartialRead(tuple(parents.value), parents.faults)


def _parent(sysfs: Sysfs, name: str) -> MdevParent:
    """Read one parent with its types and devices.

    :raises DriverError: a file is missing, garbled or cannot be read.
    """
    folder = f"{MDEV_FOLDER}/{name}"
    try:
        usual = parent_name(name)
    except ValueError as error:
        raise sysfs.fault(folder, str(error)) from error
    bus = sysfs.link_name(f"{folder}/subsystem")
    if bus is None:
        raise sysfs.fault(f"{folder}/subsystem", "no such link")
    types = sysfs.names(f"{folder}/mdev_supported_types")
    cell = sysfs.optional_integer(f"{folder}/numa_node")
    return MdevParent(
        name=usual,
        bus=bus,
        available={
            kind: sysfs.integer(f"{folder}/mdev_supported_types/{kind}/available_instances")
            for kind in types
        },
        mdevs=tuple(device for kind in types for device in _devices(sysfs, folder, kind)),
        # -1 is the kernel's word for "the firmware does not say".
        numa_node=None if cell is None or cell < 0 else cell,
    )


def _devices(sysfs: Sysfs, folder: str, mdev_type: str) -> list[Mdev]:
    """Return the devices of a type, without owners, which only a hypervisor knows."""
    return [
        Mdev(name.lower(), mdev_type)
        for name in sysfs.names(f"{folder}/mdev_supported_types/{mdev_type}/devices")
        if is_uuid(name)
    ]


def read_encryption(sysfs: Sysfs) -> PartialRead[EncryptionFacts | None]:
    """Return the techniques that are switched on, None if none is. The number of contexts is known
    only with the cgroup controller ``misc``.
    """
    try:
        on = [
            technique
            for technique, path in SWITCHES.items()
            if is_on(sysfs.optional_text(path), str(sysfs.root / path))
        ]
        capacities = _capacities(sysfs) if on else {}
    except DriverError as error:
        return PartialRead(None, (error.message,))
    except ValueError as error:
        return PartialRead(None, (printable(str(error)),))
    return PartialRead(
        EncryptionFacts({technique: contexts(technique, capacities) for technique in on})
        if on
        else None
    )


def _capacities(sysfs: Sysfs) -> dict[str, int] | None:
    for path in CAPACITIES:
        text = sysfs.optional_text(path)
        if text is not None:
            return parse_capacities(text, str(sysfs.root / path))
    return None
