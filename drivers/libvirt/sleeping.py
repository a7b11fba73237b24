"""Dedicated CPUs that are offline while no guest has them, because of nova's
``cpu_power_management``.

Of an offline CPU the kernel and libvirt report only that it exists, and its cell. Its core and
package are taken from the time when it was online: the last topology is remembered, over restarts
too.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from oslo_log import log as logging

from agent.model.topology import Cell, Topology

LOG = logging.getLogger(__name__)

FILE = "libvirt-cores.json"


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
        document: Any = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return Topology(tuple(_parse_cell(cell) for cell in document["cells"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        LOG.warning(
            (
                "%s cannot be used, so the cores of offline CPUs are unknown until these CPUs are "
                "online: %s"
            ),
            folder / FILE,
            error,
        )
        return None


def _parse_cell(document: Mapping[str, Any]) -> Cell:
    cores = tuple(_parse_cpus(core) for core in document["siblings"])
    return Cell(
        int(document["id"]),
        _parse_cpus(document["cpus"]),
        0,
        siblings=cores,
        sockets=_parse_cpus(document["sockets"]),
    )


def _parse_cpus(numbers: Iterable[Any]) -> frozenset[int]:
    return frozenset(int(cpu) for cpu in numbers)


def write_topology(folder: Path, topology: Topology) -> None:
    """Write down which CPUs are on which cells and cores. A failure is logged; the topology is then
    lost at the next restart only.
    """
    cells = [
        {
            "id": cell.id,
            "cpus": sorted(cell.cpus),
            "siblings": [sorted(core) for core in cell.siblings],
            "sockets": sorted(cell.sockets),
        }
        for cell in topology.cells
    ]
    new = folder / f"{FILE}.new"
    try:
        new.write_text(json.dumps({"cells": cells}) + "\n", encoding="utf-8")
        new.replace(folder / FILE)
    except OSError as error:
        LOG.warning("%s cannot be written: %s", folder / FILE, error.strerror)
