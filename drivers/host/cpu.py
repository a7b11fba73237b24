"""The CPUs of the host: which exist, which are online, of what kind they are, and how they share
cores and packages.
"""

import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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
# The newest kernels may drop the first name, the oldest know only it; recordings of very old ones
# have only maps.
_THREADS = ("thread_siblings_list", "core_cpus_list", "thread_siblings", "core_cpus")


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


@dataclass(frozen=True, slots=True)
class Cores:
    """The cores and packages of the CPUs of one cell."""

    siblings: tuple[frozenset[int], ...]
    """Disjoint sets of CPUs, ordered by their lowest CPU."""
    sockets: frozenset[int]
    """The packages, as far as the kernel reports them."""


def read_cores(sysfs: Sysfs, cpus: frozenset[int]) -> Cores:
    """Return the cores of ``cpus``, the online CPUs of one cell. Only one CPU of each core is read.

    A CPU for which the kernel lists no siblings is a core of its own.

    :raises DriverError: a file cannot be read, or the cores overlap.
    """
    siblings: list[frozenset[int]] = []
    sockets: set[int] = set()
    seen: set[int] = set()
    for cpu in sorted(cpus):
        if cpu in seen:
            continue
        threads = _threads(sysfs, cpu, cpus)
        if threads & seen or cpu not in threads:
            raise sysfs.fault(
                f"{FOLDER}/cpu{cpu}/topology",
                f"its siblings {sorted(threads)} contradict those of another CPU",
            )
        seen |= threads
        siblings.append(threads)
        sockets.update(_package(sysfs, cpu))
    return Cores(tuple(siblings), frozenset(sockets))


def _threads(sysfs: Sysfs, cpu: int, cpus: frozenset[int]) -> frozenset[int]:
    threads = sysfs.optional_cpus(*(f"{FOLDER}/cpu{cpu}/topology/{name}" for name in _THREADS))
    return frozenset({cpu}) if threads is None else threads & cpus


def _package(sysfs: Sysfs, cpu: int) -> Iterable[int]:
    package = sysfs.optional_integer(f"{FOLDER}/cpu{cpu}/topology/physical_package_id")
    # -1 is the kernel's word for "the firmware does not say".
    return () if package is None or package < 0 else (package,)
