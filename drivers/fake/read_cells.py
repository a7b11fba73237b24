"""Reads the NUMA cells of a host file."""

from agent.model.cpu_list import format_cpu_list
from agent.model.names import number_of
from agent.model.topology import Cell, PagePool, Topology
from drivers.fake.part import Part


def read_cells(part: Part, online: frozenset[int] | None) -> Topology:
    """Return the cells, ordered by id; only CPUs of ``online`` are online, all with ``None``."""
    cells: dict[int, Cell] = {}
    owners: dict[int, int] = {}
    for item in part.items():
        cell = _cell(item, online)
        if cell.id in cells:
            item.wrong(("id",), f"the cell {cell.id} is here twice", "give every cell its own id")
        taken = frozenset(cpu for cpu in cell.cpus if cpu in owners)
        if taken:
            item.wrong(
                ("cpus",),
                f"the CPUs {format_cpu_list(taken)} belong to another cell too",
                "put every CPU into one cell",
            )
        owners.update(dict.fromkeys(cell.cpus, cell.id))
        cells[cell.id] = cell
    for item in part.items():
        _check_distances(item, cells, part.whole)
    return Topology(tuple(cells[number] for number in sorted(cells)))


def _cell(part: Part, online: frozenset[int] | None) -> Cell:
    """Return one cell; errors are noted."""
    data = part.data
    cpus = part.cpus("cpus")
    running = cpus if online is None else cpus & online
    return Cell(
        id=data["id"],
        cpus=cpus,
        memory_mib=int(data["memory_mib"]),
        pages=_pages(part),
        distances={
            int(other): int(distance) for other, distance in data.get("distances", {}).items()
        },
        siblings=_siblings(part, cpus, running),
        sockets=frozenset(data.get("sockets", ())),
    )


def _siblings(
    part: Part, cpus: frozenset[int], running: frozenset[int]
) -> tuple[frozenset[int], ...]:
    """Return the online threads of every core; without a list of siblings every CPU is a core of
    its own.
    """
    if "siblings" not in part.data:
        return tuple(frozenset({cpu}) for cpu in sorted(running))
    cores = [part.cpus("siblings", index) for index in range(len(part.data["siblings"]))]
    listed = [cpu for core in cores for cpu in core]
    if len(set(listed)) < len(listed):
        part.wrong(("siblings",), "a CPU is in two cores", "list every CPU once")
    if set(listed) != cpus:
        odd = format_cpu_list(cpus.symmetric_difference(listed))
        part.wrong(
            ("siblings",),
            f"the CPUs {odd} are in the cell or in its cores, but not in both",
            "list just the CPUs of the cell",
        )
    return tuple(core & running for core in cores if core & running)


def _pages(part: Part) -> tuple[PagePool, ...]:
    """Return the pools of pages; errors are noted."""
    pools: dict[int, PagePool] = {}
    for index, data in enumerate(part.data.get("pages", ())):
        pool = PagePool(
            int(data["size_kib"]),
            int(data["total"]),
            None if "free" not in data else int(data["free"]),
        )
        if pool.size_kib in pools:
            part.wrong(
                ("pages", index),
                f"the page size {pool.size_kib} KiB is here twice",
                "add the two up",
            )
        if pool.free is not None and pool.free > pool.total:
            part.wrong(
                ("pages", index, "free"),
                f"{number_of(pool.free, 'page')} free, of {pool.total}",
                "write at most total",
            )
        pools[pool.size_kib] = pool
    needed = sum(pool.size_kib * pool.total for pool in pools.values())
    if needed > part.data["memory_mib"] * 1024:
        part.wrong(
            ("pages",),
            f"the pages need {needed // 1024} MiB, of {part.data['memory_mib']} MiB",
            "have fewer pages, or more memory",
        )
    return tuple(pools[size] for size in sorted(pools))


def _check_distances(part: Part, cells: dict[int, Cell], whole: bool) -> None:
    """Note errors in the distances of a cell."""
    for other, distance in part.data.get("distances", {}).items():
        if whole and int(other) not in cells:
            part.wrong(
                ("distances", other),
                f"there is no cell {other}",
                f"cells: {', '.join(str(number) for number in sorted(cells))}",
            )
        elif int(other) == part.data["id"] and distance != 10:
            part.wrong(
                ("distances", other),
                f"the distance of the cell to itself is {distance}",
                "write 10",
            )
