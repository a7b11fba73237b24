"""Where a guest's cells are on the host: from how its memory is bound and its CPUs are pinned."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from agent.model.guest import GuestCell, PlacedCell
from agent.model.topology import Topology
from drivers.libvirt.amount import kib_of, mib_up
from drivers.libvirt.cpu_set import cpus_of, only_one
from drivers.libvirt.xml import Element, child, fault, natural

SHARE = "share"


@dataclass(frozen=True, slots=True)
class Placement:
    """``ranges``: the host CPUs on which each guest CPU may run, where the guest says. ``cells``: the cell of each host CPU.

    A guest CPU that may run on one host CPU only, which no other may run on alone, is taken to have it for itself: so nova pins.
    """

    ranges: Mapping[int, frozenset[int]]
    cells: Mapping[int, int]

    @property
    def pins(self) -> dict[int, int]:
        """Guest CPU to the host CPU that it has for itself."""
        alone = {vcpu: cpu for vcpu, cpus in self.ranges.items() if (cpu := only_one(cpus)) is not None}
        often = Counter(alone.values())
        return {vcpu: cpu for vcpu, cpu in alone.items() if often[cpu] == 1}

    def cell_of(self, vcpus: Iterable[int]) -> int | None:
        """The one host cell on which all these guest CPUs have to run, if there is one."""
        found: set[int | None] = set()
        for vcpu in vcpus:
            found |= {self.cells.get(cpu) for cpu in self.ranges[vcpu]} if vcpu in self.ranges else {None}
        return next(iter(found)) if len(found) == 1 else None


def placed_cells(domain: Element, topology: Topology | None, emulator_policy: str | None, what: str) -> tuple[PlacedCell, ...]:
    """The guest's cells that are bound to one host cell each, by their ids; none for a guest that floats.

    A guest without cells of its own that is pinned has one on each host cell where it is pinned, with even shares of its memory.
    ``emulator_policy``: what the flavor says of it, None if it says nothing.

    :raises DriverError: something of it is garbled.
    """
    host = {cpu: cell.id for cell in (topology.cells if topology is not None else ()) for cpu in cell.cpus}
    pinned = domain.findall("cputune/vcpupin")
    placement = Placement({natural(one.get("vcpu"), f"{what}: vcpupin"): cpus_of(one.get("cpuset", ""), f"{what}: vcpupin") for one in pinned}, host)
    own = domain.findall("cpu/numa/cell")
    cells = _own_cells(domain, own, placement, what) if own else _seen_cells(domain, placement, what)
    return _with_emulator(domain, cells, placement, emulator_policy, what)


def _own_cells(domain: Element, own: list[Element], placement: Placement, what: str) -> tuple[PlacedCell, ...]:
    bound, everywhere = _bound(domain, what)
    sizes, pins = _page_sizes(domain, what), placement.pins
    placed: dict[int, PlacedCell] = {}
    for index, element in enumerate(own):
        cell_id = natural(element.get("id", str(index)), f"{what}: cell")
        of_cell = f"{what}: cell {cell_id}"
        if cell_id in placed:
            raise fault(of_cell, "listed twice")
        cpus = cpus_of(element.get("cpus", ""), of_cell) if element.get("cpus") else frozenset[int]()
        memory = mib_up(kib_of(element.get("memory"), element.get("unit"), of_cell))
        host_cell = bound.get(cell_id, everywhere)
        host_cell = placement.cell_of(cpus) if host_cell is None else host_cell
        if host_cell is not None:
            dedicated = cpus.intersection(pins)
            page_size = sizes.get(cell_id, sizes.get(None))
            placed[cell_id] = PlacedCell(GuestCell(cpus - dedicated, dedicated, memory), host_cell, page_size, {cpu: pins[cpu] for cpu in sorted(dedicated)})
    return tuple(placed[cell_id] for cell_id in sorted(placed))


def _bound(domain: Element, what: str) -> tuple[dict[int, int], int | None]:
    """The host cell that each guest cell's memory is bound to, and the one of all memory, where it is just one."""
    nodes = {natural(one.get("cellid"), f"{what}: memnode"): _one_cell(one.get("nodeset"), f"{what}: memnode") for one in domain.findall("numatune/memnode")}
    memory = domain.find("numatune/memory")
    return {cell: node for cell, node in nodes.items() if node is not None}, None if memory is None else _one_cell(memory.get("nodeset"), f"{what}: numatune")


def _one_cell(nodeset: str | None, what: str) -> int | None:
    return only_one(cpus_of(nodeset, what)) if nodeset else None


def _page_sizes(domain: Element, what: str) -> dict[int | None, int]:
    """Sizes of huge pages in KiB by guest cell; that of all others by None. Without a size the host's usual one is meant, which nobody tells."""
    sizes: dict[int | None, int] = {}
    for page in domain.findall("memoryBacking/hugepages/page"):
        size = kib_of(page.get("size"), page.get("unit"), f"{what}: hugepages")
        nodeset = page.get("nodeset")
        sizes.update(dict.fromkeys(cpus_of(nodeset, f"{what}: hugepages") if nodeset else (None,), size))
    return sizes


def _seen_cells(domain: Element, placement: Placement, what: str) -> tuple[PlacedCell, ...]:
    by_cell: dict[int, dict[int, int]] = {}
    for vcpu, cpu in sorted(placement.pins.items()):
        if cpu in placement.cells:
            by_cell.setdefault(placement.cells[cpu], {})[vcpu] = cpu
    if not by_cell:
        return ()
    memory = child(domain, "memory", what)
    share, rest = divmod(mib_up(kib_of(memory.text, memory.get("unit"), f"{what}: memory")), len(by_cell))
    size = _page_sizes(domain, what).get(None)
    return tuple(
        PlacedCell(GuestCell(frozenset(), frozenset(pins), share + (rest if index == 0 else 0)), cell, size, pins)
        for index, (cell, pins) in enumerate(sorted(by_cell.items()))
    )


def _with_emulator(domain: Element, cells: tuple[PlacedCell, ...], placement: Placement, policy: str | None, what: str) -> tuple[PlacedCell, ...]:
    """With the host CPU that the emulator has for itself: the one that it is pinned to, if no CPU of the guest runs there."""
    emulator = domain.find("cputune/emulatorpin")
    if emulator is None or policy == SHARE or not any(one.pins for one in cells):
        return cells
    cpu = only_one(cpus_of(emulator.get("cpuset", ""), f"{what}: emulatorpin"))
    if cpu is None or any(cpu in cpus for cpus in placement.ranges.values()):
        return cells
    place = next((index for index, one in enumerate(cells) if placement.cells.get(cpu) == one.host_cell), 0)
    return tuple(replace(one, reserved=frozenset({cpu})) if index == place else one for index, one in enumerate(cells))
