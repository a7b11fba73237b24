"""The placement of a guest's cells on host cells, from the binding of its memory and the pinning of
its CPUs.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from agent.model.facts import Topology
from agent.model.instance import GuestCell, PlacedCell
from drivers.libvirt.xml import (
    Element,
    NumberLists,
    child,
    fault,
    kib_of,
    mib_up,
    natural,
    only_one,
)

SHARE = "share"


@dataclass(frozen=True, slots=True)
class GuestBinding:
    """The XML of a guest that is being read."""

    domain: Element
    """The ``<domain>``."""
    what: str
    """How errors call the guest."""
    lists: NumberLists


# Memory devices that take nothing of the host's memory, although libvirt adds them to a guest's.
_NO_RAM = ("nvdimm", "virtio-pmem", "sgx-epc")


@dataclass(frozen=True, slots=True)
class MemoryDevice:
    """A device that adds memory to one cell of a guest; for what it does not say, the cell's own
    memory decides.
    """

    kib: int
    model: str
    cell: int | None
    """The guest's cell."""
    host_cell: int | None
    page_size_kib: int | None


def memory_devices(domain: Element, what: str) -> Iterator[MemoryDevice]:
    """Yield the memory devices of a guest.

    :raises DriverError: a part of one is garbled.
    """
    what, lists = f"{what}: memory device", NumberLists()
    for device in domain.findall("devices/memory"):
        size, page = child(device, "target/size", what), device.find("source/pagesize")
        cell = device.findtext("target/node")
        yield MemoryDevice(
            kib_of(size.text, size.get("unit"), what),
            device.get("model", ""),
            None if cell is None else natural(cell, what),
            lists.one(device.findtext("source/nodemask"), what),
            None if page is None else kib_of(page.text, page.get("unit"), what),
        )


def ram_mib(domain: Element, what: str) -> int:
    """Return the memory of a guest in MiB, without persistent memory.

    :raises DriverError: it is missing or garbled.
    """
    memory = child(domain, "memory", what)
    kib = kib_of(memory.text, memory.get("unit"), f"{what}: memory")
    others = (one.kib for one in memory_devices(domain, what) if one.model in _NO_RAM)
    return mib_up(max(kib - sum(others), 0))


class CpuAffinity:
    """On which host CPUs and host cells each guest CPU may run, where the XML says so.

    A guest CPU that may run on one host CPU only, on which no other guest CPU runs alone, is taken
    as pinned, because nova pins this way.
    """

    def __init__(self, ranges: Mapping[int, frozenset[int]], topology: Topology | None) -> None:
        self.ranges = ranges
        self.cells = {
            cpu: cell.id
            for cell in (topology.cells if topology is not None else ())
            for cpu in cell.cpus
        }
        alone = {vcpu: cpu for vcpu, cpus in ranges.items() if (cpu := only_one(cpus)) is not None}
        often = Counter(alone.values())
        self.pins = {vcpu: cpu for vcpu, cpu in sorted(alone.items()) if often[cpu] == 1}
        # By range, because most CPUs of a guest have the same one.
        self._spread = {
            cpus: frozenset(self.cells.get(cpu) for cpu in cpus) for cpus in set(ranges.values())
        }

    def cell_of(self, vcpus: Iterable[int]) -> int | None:
        """Return the one host cell on which all these guest CPUs have to run; None if there is no
        single one.
        """
        found: set[int | None] = set()
        for vcpu in vcpus:
            found |= self._spread[self.ranges[vcpu]] if vcpu in self.ranges else {None}
        return next(iter(found)) if len(found) == 1 else None


def placed_cells(
    domain: Element, topology: Topology | None, emulator_policy: str | None, what: str
) -> tuple[PlacedCell, ...]:
    """Return the guest's cells that are each bound to one host cell, ordered by id; empty for a
    guest that floats.

    A pinned guest without cells of its own gets one on each host cell where it is pinned, with even
    shares of its memory. ``emulator_policy``: the flavor's policy for emulator threads, None
    without one.

    :raises DriverError: a part of the XML is garbled.
    """
    guest = GuestBinding(domain, what, NumberLists())
    place = f"{what}: vcpupin"
    ranges = {
        natural(pin.get("vcpu"), place): guest.lists.read(pin.get("cpuset", ""), place)
        for pin in domain.findall("cputune/vcpupin")
    }
    placement = CpuAffinity(ranges, topology)
    cells = (
        _own_cells(guest, placement)
        if domain.find("cpu/numa/cell") is not None
        else _seen_cells(guest, placement)
    )
    return _with_emulator(guest, cells, placement, emulator_policy)


def _own_cells(guest: GuestBinding, placement: CpuAffinity) -> tuple[PlacedCell, ...]:
    """Return those of the guest's own cells that are bound to one host cell. The memory of devices
    that is elsewhere, or on other pages, is a cell without CPUs.
    """
    bound, everywhere = _bound(guest)
    sizes = _page_sizes(guest)
    own = _cells(guest)
    devices = [one for one in memory_devices(guest.domain, guest.what) if one.model not in _NO_RAM]
    placed = []
    for cell_id, (cpus, memory_mib) in sorted(own.items()):
        host_cell = bound.get(cell_id, everywhere)
        host_cell = placement.cell_of(cpus) if host_cell is None else host_cell
        if host_cell is not None:
            dedicated = cpus.intersection(placement.pins)
            pins = {cpu: placement.pins[cpu] for cpu in sorted(dedicated)}
            size = sizes.get(cell_id, sizes.get(None))
            kib = Counter({(host_cell, size): memory_mib * 1024})
            for one in devices:
                if one.cell == cell_id:
                    place = host_cell if one.host_cell is None else one.host_cell
                    kib[place, one.page_size_kib or size] += one.kib
            placed.append(
                PlacedCell(
                    GuestCell(cpus - dedicated, dedicated, mib_up(kib.pop((host_cell, size)))),
                    host_cell,
                    size,
                    pins,
                )
            )
            placed += [
                PlacedCell(GuestCell(frozenset(), frozenset(), mib_up(amount)), place, pages)
                for (place, pages), amount in kib.items()
            ]
    return tuple(placed)


def _cells(guest: GuestBinding) -> dict[int, tuple[frozenset[int], int]]:
    """Return CPUs and memory in MiB of the guest's own cells."""
    found: dict[int, tuple[frozenset[int], int]] = {}
    seen: set[int] = set()
    for index, element in enumerate(guest.domain.findall("cpu/numa/cell")):
        cell_id = natural(element.get("id", str(index)), f"{guest.what}: cell")
        what = f"{guest.what}: cell {cell_id}"
        cpus = (
            guest.lists.read(element.get("cpus", ""), what)
            if element.get("cpus")
            else frozenset[int]()
        )
        if cell_id in found or cpus & seen:
            raise fault(what, "listed twice, or another has some of its CPUs")
        seen |= cpus
        found[cell_id] = (cpus, mib_up(kib_of(element.get("memory"), element.get("unit"), what)))
    return found


def _bound(guest: GuestBinding) -> tuple[dict[int, int], int | None]:
    """Return the host cell that each guest cell's memory is bound to, and the host cell of all
    memory; only where it is a single one.
    """
    what = f"{guest.what}: numatune"
    nodes = {
        natural(node.get("cellid"), what): guest.lists.one(node.get("nodeset"), what)
        for node in guest.domain.findall("numatune/memnode")
    }
    memory = guest.domain.find("numatune/memory")
    everywhere = None if memory is None else guest.lists.one(memory.get("nodeset"), what)
    return {cell: node for cell, node in nodes.items() if node is not None}, everywhere


def _page_sizes(guest: GuestBinding) -> dict[int | None, int]:
    """Return the sizes of huge pages in KiB by guest cell; the key None is for all other cells.
    ``<hugepages>`` without a page element means the host's default size, which libvirt does not
    report.
    """
    sizes: dict[int | None, int] = {}
    what = f"{guest.what}: hugepages"
    for page in guest.domain.findall("memoryBacking/hugepages/page"):
        size = kib_of(page.get("size"), page.get("unit"), what)
        nodeset = page.get("nodeset")
        sizes.update(dict.fromkeys(guest.lists.read(nodeset, what) if nodeset else (None,), size))
    return sizes


def _seen_cells(guest: GuestBinding, placement: CpuAffinity) -> tuple[PlacedCell, ...]:
    """Return a cell for each host cell where a guest without own cells is pinned."""
    by_cell: dict[int, dict[int, int]] = {}
    for vcpu, cpu in placement.pins.items():
        if cpu in placement.cells:
            by_cell.setdefault(placement.cells[cpu], {})[vcpu] = cpu
    if not by_cell:
        return ()
    share, rest = divmod(ram_mib(guest.domain, guest.what), len(by_cell))
    size = _page_sizes(guest).get(None)
    return tuple(
        PlacedCell(
            GuestCell(frozenset(), frozenset(pins), share + (rest if index == 0 else 0)),
            cell,
            size,
            pins,
        )
        for index, (cell, pins) in enumerate(sorted(by_cell.items()))
    )


def _with_emulator(
    guest: GuestBinding, cells: tuple[PlacedCell, ...], placement: CpuAffinity, policy: str | None
) -> tuple[PlacedCell, ...]:
    """Add the host CPU of the emulator: the CPU that it is pinned to, if no CPU of the guest runs
    there.
    """
    emulator = guest.domain.find("cputune/emulatorpin")
    if emulator is None or policy == SHARE or not any(cell.pins for cell in cells):
        return cells
    cpu = only_one(guest.lists.read(emulator.get("cpuset", ""), f"{guest.what}: emulatorpin"))
    if cpu is None or any(cpu in cpus for cpus in placement.ranges.values()):
        return cells
    place = next(
        (index for index, cell in enumerate(cells) if placement.cells.get(cpu) == cell.host_cell), 0
    )
    return tuple(
        replace(cell, reserved=frozenset({cpu})) if index == place else cell
        for index, cell in enumerate(cells)
    )
