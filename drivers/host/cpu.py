"""The CPUs of the host (which exist, which are online, of what kind they are, how they share cores
and packages), its NUMA cells and its memory.

The memory has three possible sources, and they differ: the kernel's total (``/proc/meminfo``, which
psutil reads and libvirt gives to nova), the sum of the cells' ``MemTotal``, and the memory plugged
in. On the running machine the kernel's total counts: it is what guests can be given, and what the
host had in Placement if nova reported it. The sum of the cells is mostly the same, but can be far
less: on a virtual machine of 24 GiB, Linux 6.18 was seen to count 4 GiB in its only cell. Each cell
keeps its own figure, the only one there is.

A recording of /sys has no total, and this machine's total is another's: there the memory is the sum
of the cells, each rounded down to MiB. The source depends on ``[host] sysfs_root`` alone, so that
the figure does not alternate between two sources while the agent runs.

A host without NUMA has one cell that is the whole host, with the kernel's total; so has a recording
of such a host, for want of another source, and thus gets the memory of this machine, like the disk.
"""

import platform
import re
from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import Path

import psutil

from agent.errors import DriverError, NotReady
from agent.model.facts import Cell, CpuFacts, PagePool, PartialRead, Topology, group_cores
from drivers.host.sysfs import Sysfs

CPUS_FOLDER = "devices/system/cpu"
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
    return sysfs.numbers(CPUS_FOLDER, r"cpu(\d+)")


def read_online(sysfs: Sysfs) -> PartialRead[frozenset[int]]:
    """Return the CPUs that are online.

    They are read from the kernel's list for the host, because neither a cgroup nor an affinity mask
    of the agent limits guests. Without the list (old kernels), these are the CPUs with a topology,
    which the kernel removes from an offline CPU; so too, as the best guess, where the list cannot
    be read.
    """
    try:
        online = sysfs.optional_cpus(f"{CPUS_FOLDER}/online")
        if online is not None and not online:
            raise sysfs.fault(f"{CPUS_FOLDER}/online", "lists no CPU")
        return PartialRead(_with_topology(sysfs) if online is None else online)
    except DriverError as error:
        faults = (error.message,)
    try:
        return PartialRead(_with_topology(sysfs), faults)
    except DriverError as error:
        return PartialRead(frozenset(), (*faults, error.message))


def _with_topology(sysfs: Sysfs) -> frozenset[int]:
    return frozenset(
        cpu for cpu in present_cpus(sysfs) if sysfs.is_folder(f"{CPUS_FOLDER}/cpu{cpu}/topology")
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


def read_cores(
    sysfs: Sysfs, cpus: frozenset[int]
) -> tuple[tuple[frozenset[int], ...], frozenset[int]]:
    """Return the cores of ``cpus``, the online CPUs of one cell: disjoint sets, ordered by their
    lowest CPU; and the packages, as far as the kernel reports them. Only one CPU of each core is
    read.

    A CPU for which the kernel lists no siblings is a core of its own.

    :raises DriverError: a file cannot be read, or the cores overlap.
    """
    try:
        siblings = group_cores(cpus, lambda cpu: _threads(sysfs, cpu))
    except ValueError as error:
        raise sysfs.fault(CPUS_FOLDER, str(error)) from error
    packages = (package for core in siblings for package in _package(sysfs, min(core)))
    return siblings, frozenset(packages)


def _threads(sysfs: Sysfs, cpu: int) -> frozenset[int]:
    threads = sysfs.optional_cpus(*(f"{CPUS_FOLDER}/cpu{cpu}/topology/{name}" for name in _THREADS))
    return frozenset({cpu}) if threads is None else threads


def _package(sysfs: Sysfs, cpu: int) -> Iterable[int]:
    package = sysfs.optional_integer(f"{CPUS_FOLDER}/cpu{cpu}/topology/physical_package_id")
    # -1 is the kernel's word for "the firmware does not say".
    return () if package is None or package < 0 else (package,)


MIB = 1024 * 1024


def read_memory_mib(sysfs: Sysfs, topology: PartialRead[Topology]) -> PartialRead[int]:
    """Return the host's memory in MiB, rounded down; for a recording, with the faults of its
    cells.
    """
    if not sysfs.is_live:
        return PartialRead(topology.value.memory_mib, topology.faults)
    try:
        return PartialRead(kernel_total_mib())
    except DriverError as error:
        return PartialRead(0, (error.message,))


def kernel_total_mib() -> int:
    """Return the kernel's total of this machine in MiB, rounded down.

    :raises DriverError: it cannot be read.
    """
    try:
        return int(psutil.virtual_memory().total) // MIB
    except OSError as error:
        raise DriverError(f"the kernel's total memory cannot be read: {error}") from error


def read_pools(sysfs: Sysfs, folder: str) -> tuple[PagePool, ...]:
    """Return the pools of huge pages in ``folder``, smallest pages first; empty on a kernel without
    huge pages.

    Surplus pages count, because the kernel counts them in ``nr_hugepages``.

    :raises DriverError: a pool's file is missing or garbled.
    """
    return tuple(_pool(sysfs, folder, size) for size in sysfs.numbers(folder, r"hugepages-(\d+)kB"))


def _pool(sysfs: Sysfs, folder: str, size_kib: int) -> PagePool:
    pool = f"{folder}/hugepages-{size_kib}kB"
    return PagePool(
        size_kib,
        total=sysfs.integer(f"{pool}/nr_hugepages"),
        free=sysfs.optional_integer(f"{pool}/free_hugepages"),
    )


CELLS_FOLDER = "devices/system/node"

LOCAL_DISTANCE = 10

_MEMORY = re.compile(r"\bMemTotal:\s*([0-9]{1,12}) kB\b")
_DISTANCE = re.compile(r"[0-9]{1,3}")


def read_topology(sysfs: Sysfs, online: frozenset[int]) -> PartialRead[Topology]:
    """Return all online cells, ordered by id. A cell that cannot be read becomes a fault; the
    others stay.
    """
    try:
        ids = _cell_ids(sysfs)
        if not ids:
            return PartialRead(Topology((_whole_host(sysfs, online),)))
    except DriverError as error:
        return PartialRead(Topology(()), (error.message,))
    cells, faults = [], []
    for cell_id in ids:
        try:
            cells.append(_cell(sysfs, cell_id, ids, online))
        except DriverError as error:
            faults.append(f"cell {cell_id}: {error.message}")
    return PartialRead(Topology(tuple(cells)), tuple(faults))


def _cell_ids(sysfs: Sysfs) -> list[int]:
    """Return the cells that the kernel lists as online; without such a list, those that have a
    folder. Empty without NUMA.
    """
    folders = sysfs.numbers(CELLS_FOLDER, r"node(\d+)")
    online = sysfs.optional_cpus(f"{CELLS_FOLDER}/online") if folders else None
    if online is not None and not online:
        raise sysfs.fault(f"{CELLS_FOLDER}/online", "lists no cell")
    return folders if online is None else sorted(online)


def _whole_host(sysfs: Sysfs, online: frozenset[int]) -> Cell:
    """Return the one cell of a host without NUMA."""
    siblings, sockets = read_cores(sysfs, online)
    return Cell(
        id=0,
        cpus=frozenset(present_cpus(sysfs)) | online,
        memory_mib=kernel_total_mib(),
        pages=read_pools(sysfs, "kernel/mm/hugepages"),
        distances={0: LOCAL_DISTANCE},
        siblings=siblings,
        sockets=sockets,
    )


def _cell(sysfs: Sysfs, cell_id: int, ids: list[int], online: frozenset[int]) -> Cell:
    """Read one cell.

    :raises DriverError: a file is missing, garbled or cannot be read.
    """
    folder = f"{CELLS_FOLDER}/node{cell_id}"
    cpus = sysfs.optional_cpus(f"{folder}/cpulist", f"{folder}/cpumap")
    if cpus is None:
        raise sysfs.fault(folder, "has neither cpulist nor cpumap")
    siblings, sockets = read_cores(sysfs, cpus & online)
    return Cell(
        id=cell_id,
        cpus=cpus,
        memory_mib=_memory_mib(sysfs, folder),
        pages=read_pools(sysfs, f"{folder}/hugepages"),
        distances=_distances(sysfs, folder, ids),
        siblings=siblings,
        sockets=sockets,
    )


def _memory_mib(sysfs: Sysfs, folder: str) -> int:
    match = _MEMORY.search(sysfs.text(f"{folder}/meminfo"))
    if match is None:
        raise sysfs.fault(f"{folder}/meminfo", "has no MemTotal")
    return int(match[1]) // 1024


def _distances(sysfs: Sysfs, folder: str, ids: list[int]) -> dict[int, int]:
    """Return the distances to the online cells; the kernel writes one column for each, ordered by
    id.

    Further columns are ignored, as in libvirt: only a recording from which a cell was removed has
    them.
    """
    text = sysfs.optional_text(f"{folder}/distance")
    if text is None:
        return {}
    columns = text.split()
    if len(columns) < len(ids) or not all(map(_DISTANCE.fullmatch, columns)):
        raise sysfs.fault(
            f"{folder}/distance", f"{text[:40]!r} is not a distance for each of {len(ids)} cells"
        )
    return dict(zip(ids, map(int, columns), strict=False))
