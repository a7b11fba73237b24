"""A flavor for a guest of which nobody wrote down from which it was made: what is seen of it, as an operator would ask for the same. Pure."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from agent.model.cpu_list import format_cpu_list
from agent.model.domain import Domain
from agent.model.flavor import Flavor
from agent.model.guest import PlacedCell
from agent.numa.host import HostCell


def seen_flavor(guest: Domain, vcpus: int, cells: Iterable[HostCell]) -> Flavor:
    """The flavor; guests that look the same get the same one. Nobody sees how much of the disk a guest takes, so that it is none.

    ``cells``: of the host, which say what an ordinary page is.
    """
    ordinary = {cell.id: cell.smallest_page_kib for cell in cells}
    placed = _whole(guest.cells, vcpus, guest.memory_mib) if guest.cells else ()
    memory = sum(one.cell.memory_mib for one in placed) if placed else guest.memory_mib
    specs = _specs(placed, ordinary) if placed else {}
    digest = hashlib.sha256(json.dumps([vcpus, memory, specs], sort_keys=True).encode()).hexdigest()
    return Flavor(f"seen-{digest[:16]}", f"as seen: {vcpus} CPUs, {memory} MiB", vcpus, memory, extra_specs=specs)


def _whole(cells: tuple[PlacedCell, ...], vcpus: int, memory_mib: int) -> tuple[PlacedCell, ...]:
    """The cells with all CPUs and memory of the guest: what is seen in no cell of the host is in the first one's, because a flavor knows no more."""
    first, *others = cells
    lost = frozenset(range(vcpus)).difference(*(one.cell.cpus for one in cells))
    more = max(memory_mib - sum(one.cell.memory_mib for one in cells), 0)
    return (replace(first, cell=replace(first.cell, shared=first.cell.shared | lost, memory_mib=first.cell.memory_mib + more)), *others)


def _specs(placed: tuple[PlacedCell, ...], ordinary: Mapping[int, int | None]) -> dict[str, str]:
    """The extra specs that ask for such cells, so that the guest keeps them when it moves."""
    shared, dedicated = (frozenset[int]().union(*kind) for kind in ((one.cell.shared for one in placed), (one.cell.dedicated for one in placed)))
    specs = {"hw:numa_nodes": str(len(placed))}
    for index, one in enumerate(placed):
        specs |= {f"hw:numa_cpus.{index}": format_cpu_list(one.cell.cpus), f"hw:numa_mem.{index}": str(one.cell.memory_mib)}
    if dedicated:
        specs["hw:cpu_policy"] = "mixed" if shared else "dedicated"
    if dedicated and shared:
        specs["hw:cpu_dedicated_mask"] = format_cpu_list(dedicated)
    if dedicated and any(one.reserved for one in placed):
        specs["hw:emulator_threads_policy"] = "isolate"
    sizes = {one.page_size_kib for one in placed if one.page_size_kib not in (None, ordinary.get(one.host_cell))}
    if len(sizes) == 1:
        specs["hw:mem_page_size"] = str(sizes.pop())
    return specs
