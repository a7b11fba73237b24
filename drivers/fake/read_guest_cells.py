"""The cells of a guest of a host file: where they sit, and what of the host they have."""

from agent.model.cpu_list import format_cpu_list
from agent.model.guest import GuestCell, PlacedCell
from agent.model.topology import Topology
from drivers.fake.part import Part


def read_guest_cells(part: Part, topology: Topology | None) -> tuple[PlacedCell, ...]:
    """The placed cells, in the order of the file; ``topology`` are the host's cells, ``None`` if they are not known."""
    placed: list[PlacedCell] = []
    for item in part.items():
        cell = _cell(item)
        owned = frozenset[int]().union(*(one.cell.cpus for one in placed))
        if twice := cell.cell.cpus & owned:
            item.wrong((), f"the guest's CPUs {format_cpu_list(twice)} are in another cell of it too", "put every CPU into one cell")
        if topology is not None:
            _check_place(item, cell, topology)
        placed.append(cell)
    return tuple(placed)


def _cell(part: Part) -> PlacedCell:
    data = part.data
    shared, dedicated, emulator = (part.cpus(key) if key in data else frozenset[int]() for key in ("shared", "dedicated", "emulator"))
    pins = {int(cpu): int(host_cpu) for cpu, host_cpu in data.get("pins", {}).items()}
    if both := shared & dedicated:
        part.wrong(("dedicated",), f"the guest's CPUs {format_cpu_list(both)} are shared too", "a CPU is one or the other")
    if odd := dedicated.symmetric_difference(pins):
        remedy = "write the host CPU of each dedicated CPU of the guest, and of no other"
        part.wrong(("pins",), f"the guest's CPUs {format_cpu_list(odd)} are dedicated or pinned, but not both", remedy)
    taken = [*pins.values(), *emulator]
    if twice := {cpu for cpu in taken if taken.count(cpu) > 1}:
        part.wrong(("pins",), f"the guest has the host's CPUs {format_cpu_list(twice)} twice", "give every CPU of the guest one of its own")
    cell = GuestCell(shared, dedicated, int(data["memory_mib"]))
    return PlacedCell(cell, int(data["host_cell"]), data.get("page_size_kib"), pins, emulator)


def _check_place(part: Part, placed: PlacedCell, topology: Topology) -> None:
    host = next((cell for cell in topology.cells if cell.id == placed.host_cell), None)
    if host is None:
        known = ", ".join(str(cell.id) for cell in topology.cells) or "none"
        part.wrong(("host_cell",), f"there is no cell {placed.host_cell}", f"cells: {known}")
    elif far := placed.pinned_cpus - host.cpus:
        part.wrong(("pins",), f"the CPUs {format_cpu_list(far)} are not of the host's cell {host.id}", f"its CPUs are {format_cpu_list(host.cpus) or 'none'}")
