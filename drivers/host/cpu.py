"""The CPUs of the host: which exist, which are online, and of what kind they are."""

import platform
from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import Path

from agent.errors import DriverError, NotReady
from agent.model.facts import CpuFacts, PartialRead
from drivers.host.sysfs import Sysfs

FOLDER = "devices/system/cpu"
CPUINFO = Path("/proc/cpuinfo")

# Names of the same field on x86 and s390, on Arm, and on POWER.
_MODEL = ("model name", "cpu")
_VENDOR = ("vendor_id", "cpu implementer")
_FEATURES = ("flags", "features")


def present_cpus(sysfs: Sysfs) -> list[int]:
    """Return the CPUs that have a folder, offline ones too.

    :raises DriverError: the folder of the CPUs cannot be listed.
    """
    return sysfs.numbers(FOLDER, r"cpu(\d+)")


def read_online(sysfs: Sysfs) -> PartialRead[frozenset[int]]:
    """Return the CPUs that are online.

    They are read from the kernel's list for the host, because neither a cgroup nor an affinity mask
    of the agent limits guests. Without the list (old kernels), these are the CPUs with a topology,
    which the kernel removes from an offline CPU; so too, as the best guess, where the list cannot
    be read.
    """
    try:
        online = sysfs.optional_cpus(f"{FOLDER}/online")
        if online is not None and not online:
            raise sysfs.fault(f"{FOLDER}/online", "lists no CPU")
        return PartialRead(_with_topology(sysfs) if online is None else online)
    except DriverError as error:
        faults = (error.message,)
    try:
        return PartialRead(_with_topology(sysfs), faults)
    except DriverError as error:
        return PartialRead(frozenset(), (*faults, error.message))


def _with_topology(sysfs: Sysfs) -> frozenset[int]:
    return frozenset(
        cpu for cpu in present_cpus(sysfs) if sysfs.is_folder(f"{FOLDER}/cpu{cpu}/topology")
    )


def read_kind() -> CpuFacts:
    """Return architecture, model, vendor and features of this machine's CPUs, from the first CPU;
    ``online`` is left empty.

    :raises NotReady: /proc/cpuinfo cannot be read.
    """
    try:
        with CPUINFO.open(encoding="utf-8", errors="replace") as lines:
            # Only the first block, because the kernel generates the text of each CPU when it is
            # read.
            fields = _fields(takewhile(str.strip, lines))
    except OSError as error:
        raise NotReady(f"{CPUINFO}: {error.strerror}", "mount /proc") from error
    return CpuFacts(
        online=frozenset(),
        architecture=platform.machine(),
        model=_first(fields, _MODEL),
        vendor=_first(fields, _VENDOR),
        features=frozenset(_first(fields, _FEATURES).split()),
    )


def _fields(lines: Iterable[str]) -> Mapping[str, str]:
    parts = (line.partition(":") for line in lines)
    return {name.strip().lower(): value.strip() for name, _, value in parts}


def _first(fields: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((fields[name] for name in names if name in fields), "")
