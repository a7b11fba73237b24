"""The NUMA cells of the host, each with its memory, pages, distances and cores."""

import re

from agent.errors import DriverError
from agent.model.facts import PartialRead
from agent.model.topology import Cell, PagePool, Topology
from drivers.host.cpu import present_cpus, read_cores
from drivers.host.memory import kernel_total_mib
from drivers.host.sysfs import Sysfs


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


FOLDER = "devices/system/node"

LOCAL_DISTANCE = 10

_MEMORY = re.compile(r"\bMemTotal:\s*([0-9]{1,15}) kB")


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
    folders = sysfs.numbers(FOLDER, r"node(\d+)")
    online = sysfs.optional_cpus(f"{FOLDER}/online") if folders else None
    if online is not None and not online:
        raise sysfs.fault(f"{FOLDER}/online", "lists no cell")
    return folders if online is None else sorted(online)


def _whole_host(sysfs: Sysfs, online: frozenset[int]) -> Cell:
    """Return the one cell of a host without NUMA."""
    cores = read_cores(sysfs, online)
    return Cell(
        id=0,
        cpus=frozenset(present_cpus(sysfs)) | online,
        memory_mib=kernel_total_mib(),
        pages=read_pools(sysfs, "kernel/mm/hugepages"),
        distances={0: LOCAL_DISTANCE},
        siblings=cores.siblings,
        sockets=cores.sockets,
    )


def _cell(sysfs: Sysfs, cell_id: int, ids: list[int], online: frozenset[int]) -> Cell:
    """Read one cell.

    :raises DriverError: a file is missing, garbled or cannot be read.
    """
    folder = f"{FOLDER}/node{cell_id}"
    cpus = sysfs.optional_cpus(f"{folder}/cpulist", f"{folder}/cpumap")
    if cpus is None:
        raise sysfs.fault(folder, "has neither cpulist nor cpumap")
    cores = read_cores(sysfs, cpus & online)
    return Cell(
        id=cell_id,
        cpus=cpus,
        memory_mib=_memory_mib(sysfs, folder),
        pages=read_pools(sysfs, f"{folder}/hugepages"),
        distances=_distances(sysfs, folder, ids),
        siblings=cores.siblings,
        sockets=cores.sockets,
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
    if len(columns) < len(ids) or not all(
        column.isascii() and column.isdigit() for column in columns
    ):
        raise sysfs.fault(
            f"{folder}/distance", f"{text!r} is not a distance for each of {len(ids)} cells"
        )
    return dict(zip(ids, map(int, columns), strict=False))
