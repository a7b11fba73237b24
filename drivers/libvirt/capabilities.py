"""The host's part of libvirt's capabilities: its CPUs and its NUMA cells, with the CPUs that are
offline.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

import msgspec
from oslo_log import log as logging

from agent.model.facts import Cell, PagePool, PartialRead, Topology, group_cores
from drivers.libvirt.xml import (
    MOST_KIB,
    Element,
    NumberLists,
    fault,
    integer,
    natural,
    parse,
    read_each,
    text_of,
)

LOG = logging.getLogger(__name__)

WHAT = "capabilities"

# No Linux that runs guests has larger ordinary pages.
LARGEST_ORDINARY_KIB = 64


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The host's CPUs and cells."""

    architecture: str
    model: str
    vendor: str
    features: frozenset[str]
    """The features of the CPU beyond its model, in libvirt's words."""
    topology: PartialRead[Topology | None]
    """None where the host has no NUMA topology."""
    online: frozenset[int]
    """The CPUs that are online."""


def read_capabilities(xml: str, online: frozenset[int] | None) -> Capabilities:
    """Parse the host's part of ``getCapabilities``. A cell that cannot be parsed becomes a fault;
    the others stay.

    ``online``: the CPUs that are online; None: those whose socket the text names, as it does for
    online CPUs only.

    :raises DriverError: nothing of it can be parsed.
    """
    root = parse(xml, WHAT, "capabilities")
    host = root.find("host")
    if host is None:
        raise fault(WHAT, "no <host>")
    architecture = text_of(host, "cpu/arch")
    if not architecture:
        raise fault(WHAT, "the host's CPU has no architecture")
    cells = host.findall("topology/cells/cell")
    running = _cpus_with_socket(cells) if online is None else online
    return Capabilities(
        architecture=architecture,
        model=text_of(host, "cpu/model"),
        vendor=text_of(host, "cpu/vendor"),
        features=frozenset(feature.get("name", "") for feature in host.findall("cpu/feature"))
        - {""},
        topology=_topology(cells, running),
        online=running,
    )


def _cpus_with_socket(cells: Iterable[Element]) -> frozenset[int]:
    """Return the CPUs whose socket is listed: those that are online."""
    ids = (
        cpu.get("id", "")
        for cell in cells
        for cpu in cell.findall("cpus/cpu")
        if cpu.get("socket_id") is not None
    )
    return frozenset(
        int(text) for text in ids if text.isascii() and text.isdecimal() and len(text) <= 5
    )


def _topology(elements: list[Element], online: frozenset[int]) -> PartialRead[Topology | None]:
    """Parse all cells; a cell that cannot be parsed becomes a fault."""
    faults: list[str] = []
    lists = NumberLists()
    cells = read_each(
        elements,
        lambda element: _cell(element, _called(element), online, lists),
        attrgetter("id"),
        faults,
        lambda element, _id: fault(_called(element), "listed twice"),
    )
    in_order = tuple(cells[cell_id] for cell_id in sorted(cells))
    return PartialRead(Topology(in_order) if cells or faults else None, tuple(faults))


def _called(cell: Element) -> str:
    return f"{WHAT}: cell {(cell.get('id') or 'without id')[:20]}"


def _cell(element: Element, what: str, online: frozenset[int], lists: NumberLists) -> Cell:
    """Parse one cell.

    :raises DriverError: a part of it is garbled.
    """
    listed = element.findall("cpus/cpu")
    by_id = {natural(cpu.get("id"), f"{what}: a CPU"): cpu for cpu in listed}
    if len(by_id) < len(listed):
        raise fault(what, "a CPU is listed twice")
    running = {cpu: by_id[cpu] for cpu in sorted(by_id) if cpu in online}
    return Cell(
        id=natural(element.get("id"), what),
        cpus=frozenset(by_id),
        memory_mib=_memory_mib(element, what),
        pages=_huge_pages(element, what),
        distances=_distances(element, f"{what}: distances"),
        siblings=_cores(running, what, lists),
        sockets=frozenset(_packages(running, what)),
    )


def _memory_mib(element: Element, what: str) -> int:
    """Return MiB; libvirt gives KiB. A cell without memory has none listed, or 0."""
    memory = element.find("memory")
    if memory is None:
        return 0
    if memory.get("unit", "KiB") != "KiB":
        raise fault(what, f"its memory is in {memory.get('unit', '')[:20]!r}, not KiB")
    return natural(memory.text, f"{what}: memory", MOST_KIB) // 1024


def _distances(element: Element, what: str) -> dict[int, int]:
    return {
        natural(sibling.get("id"), what): natural(sibling.get("value"), what)
        for sibling in element.findall("distances/sibling")
    }


def _huge_pages(element: Element, what: str) -> tuple[PagePool, ...]:
    """Return the pools, smallest pages first, without the host's ordinary pages: libvirt lists
    these first, and they are no pool.
    """
    pools = dict(
        sorted(
            (
                natural(pages.get("size"), f"{what}: pages"),
                natural(pages.text, f"{what}: pages", MOST_KIB),
            )
            for pages in element.findall("pages")
        )
    )
    ordinary = min(pools, default=0)
    return tuple(
        PagePool(size, total)
        for size, total in pools.items()
        if size > ordinary or size > LARGEST_ORDINARY_KIB
    )


def _cores(
    running: dict[int, Element], what: str, lists: NumberLists
) -> tuple[frozenset[int], ...]:
    """Return the cores of the online CPUs, ordered by their lowest CPU. A CPU for which libvirt
    lists no siblings (older ones never do) is a core of its own.
    """

    def siblings_of(cpu: int) -> frozenset[int]:
        text = running[cpu].get("siblings")
        return frozenset({cpu}) if text is None else lists.read(text, f"{what}: CPU {cpu}")

    try:
        return group_cores(frozenset(running), siblings_of)
    except ValueError as error:
        raise fault(what, str(error)) from error


def _packages(running: dict[int, Element], what: str) -> Iterable[int]:
    for cpu, element in running.items():
        socket = element.get("socket_id")
        package = -1 if socket is None else integer(socket, f"{what}: CPU {cpu}: socket_id")
        # -1 is the kernel's word for "the firmware does not say".
        if package >= 0:
            yield package


# --- CPUs that are offline ------------------------------------------------------------------------

CORES_FILE = "libvirt-cores.json"


def add_sleeping_cpus(
    topology: Topology,
    online: frozenset[int],
    sleeping: frozenset[int],
    places: Mapping[int, int],
    before: Topology | None,
) -> Topology:
    """Return ``topology`` as libvirt reports it, with the CPUs that are ``sleeping`` added to their
    cells and cores.

    ``places``: the cell of each CPU, from the kernel; ``before``: the topology as last seen. A CPU
    without a known cell is left out.
    """
    if not sleeping:
        return topology
    known = {
        cpu: cell.id for cell in (before.cells if before is not None else ()) for cpu in cell.cpus
    } | dict(places)
    known |= {cpu: cell.id for cell in topology.cells for cpu in cell.cpus}
    last = {cell.id: cell for cell in (before.cells if before is not None else ())}
    return Topology(
        tuple(
            _add_to_cell(
                cell,
                last.get(cell.id),
                online,
                frozenset(cpu for cpu in sleeping if known.get(cpu) == cell.id),
            )
            for cell in topology.cells
        )
    )


def _add_to_cell(
    cell: Cell, last: Cell | None, online: frozenset[int], sleeping: frozenset[int]
) -> Cell:
    """Return the cell as it would be with these CPUs online."""
    if not sleeping:
        return cell
    remembered = [
        core
        for core in (last.siblings if last is not None else ())
        if core & sleeping and _is_possible_core(core, cell, online, sleeping)
    ]
    whole = [*remembered]
    whole += [core for core in cell.siblings if not any(core <= known for known in remembered)]
    lone = sleeping.difference(*whole)
    cores = sorted([*whole, *(frozenset({cpu}) for cpu in lone)], key=min)
    return replace(
        cell,
        cpus=cell.cpus | sleeping,
        siblings=tuple(cores),
        sockets=cell.sockets | (last.sockets if last is not None else frozenset()),
    )


def _is_possible_core(
    core: frozenset[int], cell: Cell, online: frozenset[int], sleeping: frozenset[int]
) -> bool:
    """Whether a remembered core is still possible: its online CPUs are one core now, and the others
    are offline.
    """
    awake = core & online
    return core - awake <= sleeping and (not awake or awake in cell.siblings)


def has_same_cores(first: Topology, second: Topology) -> bool:
    """Whether both have the same CPUs on the same cells and cores."""

    def cores(
        topology: Topology,
    ) -> list[tuple[int, frozenset[int], tuple[frozenset[int], ...], frozenset[int]]]:
        return [(cell.id, cell.cpus, cell.siblings, cell.sockets) for cell in topology.cells]

    return cores(first) == cores(second)


# --- over restarts --------------------------------------------------------------------------------


def read_topology(folder: Path) -> Topology | None:
    """Return the topology written to ``folder``; None if there is none that can be used, because
    all CPUs are online again sooner or later.
    """
    try:
        return msgspec.json.decode((folder / CORES_FILE).read_bytes(), type=Topology)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        LOG.warning(
            (
                "%s cannot be used, so the cores of offline CPUs are unknown until these CPUs are "
                "online: %s"
            ),
            folder / CORES_FILE,
            error,
        )
        return None


def write_topology(folder: Path, topology: Topology) -> None:
    """Write down which CPUs are on which cells and cores. A failure is logged; the topology is then
    lost at the next restart only.
    """
    new = folder / f"{CORES_FILE}.new"
    try:
        new.write_bytes(msgspec.json.encode(topology))
        new.replace(folder / CORES_FILE)
    except OSError as error:
        LOG.warning("%s cannot be written: %s", folder / CORES_FILE, error.strerror)
