"""One node of a host file as a machine."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from agent.model.assignable_unit import AssignableUnit
from agent.model.cpu_list import format_cpu_list
from agent.model.facts import CpuFacts
from agent.model.topology import Topology
from agent.yaml_files.document import Where
from drivers.fake.entry import NODE, ProviderEntry, named
from drivers.fake.machine import Machine, processor
from drivers.fake.part import Part
from drivers.fake.read_cells import read_cells
from drivers.fake.read_devices import read_devices
from drivers.fake.read_mdevs import read_encryption, read_mdevs
from drivers.fake.read_providers import read_providers
from drivers.fake.read_units import read_units

LISTS = ("cells", "mdev", "pci", "providers", "units")


class Node:
    """A node that is being read. What is wrong in its structure is known already, and is passed over.

    ``name`` is ``None`` if it is wrong.
    """

    def __init__(self, part: Part, broken: Iterable[Where], host: str) -> None:
        depth = len(part.where)
        inside = [place[depth:] for place in broken if len(place) > depth and place[:depth] == part.where]
        self._items = {place[:2] for place in inside if len(place) > 1 and place[0] in LISTS}
        gone = {place[0] for place in inside if place[:2] not in self._items}
        self.described: Mapping[str, Any] = part.data
        self.part = replace(part, data={key: value for key, value in part.data.items() if key not in gone})
        self.data: Mapping[str, Any] = self.part.data
        self.name: str | None = None if "name" in gone else self.data.get("name", host)

    def machine(self) -> Machine:
        """The machine, with errors noted if it is not sound."""
        online = self.part.cpus("cpu", "online") if "online" in self.data.get("cpu", {}) else None
        part = self._list("cells")
        cells = read_cells(part, online) if part else None
        whole = part.whole if part else "cells" not in self.described
        ids = [cell.id for cell in cells.cells] if cells and whole else None
        pci, mdev = self._list("pci"), self._list("mdev")
        providers = self._providers((ids or []) if whole else None)
        hypervisor = self.data.get("hypervisor", {})
        cpu = self._cpu(online, cells, whole)
        # A file says all that its host has: one with CPUs and no word of disk has none, which is not the same as a driver that forgot it.
        nothing = None if cpu is None else 0
        return Machine(
            hypervisor_type=hypervisor.get("type", "fake"),
            hypervisor_version=int(hypervisor.get("version", 1000)),
            cpu=cpu,
            memory_mib=self._memory(cells, nothing),
            disk_gib=int(self.data["disk_gib"]) if "disk_gib" in self.data else nothing,
            numa=cells,
            pci=read_devices(pci, ids) if pci else None,
            mdev=read_mdevs(mdev, ids) if mdev else None,
            encryption=read_encryption(self.part.at("encryption")) if "encryption" in self.data else None,
            units=self._units((ids or []) if whole else None, providers),
            incomplete=self.data.get("incomplete", {}),
            providers=providers,
        )

    def _list(self, key: str) -> Part | None:
        """The list of that name, if there is one."""
        if key not in self.data:
            return None
        return replace(self.part.at(key), broken=frozenset(int(index) for section, index in self._items if section == key))

    def _cpu(self, online: frozenset[int] | None, cells: Topology | None, whole: bool) -> CpuFacts | None:
        """The processors; those of the cells if nothing else is said."""
        data = self.data.get("cpu", {})
        in_cells = frozenset(cpu for cell in cells.cells for cpu in cell.cpus) if cells else frozenset()
        if online is None and cells is None:
            if whole and "cpu" in self.data:
                self.part.wrong(("cpu",), "lacks online, and there are no cells to take the CPUs from", "add online, a CPU list such as '0-15'")
            return None
        if cells and whole and online and online - in_cells:
            self.part.wrong(("cpu", "online"), f"the CPUs {format_cpu_list(online - in_cells)} belong to no cell", "add them to a cell's cpus")
        usual = processor(in_cells if online is None else online)
        said = {key: value for key, value in data.items() if key in ("architecture", "model", "vendor")}
        return replace(usual, **said, features=frozenset(data.get("features", usual.features)))

    def _memory(self, cells: Topology | None, nothing: int | None) -> int | None:
        """The memory; that of the cells if nothing else is said."""
        if "memory_mib" in self.data:
            return int(self.data["memory_mib"])
        return cells.memory_mib if cells else nothing

    def _providers(self, cells: list[int] | None) -> tuple[ProviderEntry, ...]:
        traits, part = self.data.get("traits"), self._list("providers")
        root = (ProviderEntry(NODE, traits=frozenset(traits)),) if traits else ()
        return root + (read_providers(part, self.name or NODE, cells) if part else ())

    def _units(self, cells: list[int] | None, providers: Iterable[ProviderEntry]) -> tuple[AssignableUnit, ...] | None:
        """The units; on the node, on its cells or on what is described outright."""
        part, described = self._list("units"), self._list("providers")
        if part is None:
            return None
        known = cells is not None and (described.whole if described else "providers" not in self.described)
        node = self.name or NODE
        names = {node, *(f"{node}_NUMA{cell}" for cell in cells or ()), *(named(one.name, node) for one in providers)}
        return read_units(part, node, names if known else None)
