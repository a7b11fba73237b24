"""One node of a host file as a machine."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from agent.model.assignable_unit import AssignableUnit
from agent.model.cpu_list import format_cpu_list
from agent.model.facts import CpuFacts
from agent.model.mdev import MdevParent
from agent.model.topology import Topology
from agent.yaml_files.document import Where
from drivers.fake.entry import NODE, ProviderEntry, named
from drivers.fake.machine import Machine, processor
from drivers.fake.part import Part
from drivers.fake.read_cells import read_cells
from drivers.fake.read_devices import read_devices
from drivers.fake.read_guests import Around, read_guests, with_owners
from drivers.fake.read_mdevs import read_encryption, read_mdevs
from drivers.fake.read_providers import read_providers
from drivers.fake.read_units import read_units

LISTS = ("cells", "guests", "mdev", "pci", "providers", "units")
NO_CELLS = Topology(())


class NodeReader:
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
        whole = self._whole("cells", part)
        ids = [cell.id for cell in cells.cells] if cells and whole else None
        pci, mdev = self._list("pci"), self._list("mdev")
        providers = self._providers((ids or []) if whole else None)
        hypervisor = self.data.get("hypervisor", {})
        cpu = self._cpu(online, cells, whole)
        # A file says all that its host has: one with CPUs and no word of disk has none, which is not the same as a driver that forgot it.
        nothing = None if cpu is None else 0
        devices = read_devices(pci, ids) if pci else None
        guests = self._list("guests")
        around = Around((cells or NO_CELLS) if whole else None, {one.address for one in devices or ()} if self._whole("pci", pci) else None)
        return Machine(
            hypervisor_type=hypervisor.get("type", "fake"),
            hypervisor_version=int(hypervisor.get("version", 1000)),
            cpu=cpu,
            memory_mib=self._memory(cells, nothing),
            disk_gib=int(self.data["disk_gib"]) if "disk_gib" in self.data else nothing,
            numa=cells,
            pci=devices,
            mdev=self._mdevs(mdev, ids, guests),
            encryption=read_encryption(self.part.at("encryption")) if "encryption" in self.data else None,
            domains=read_guests(guests, around) if guests else None,
            units=self._units((ids or []) if whole else None, providers),
            incomplete=self.data.get("incomplete", {}),
            providers=providers,
        )

    def _list(self, key: str) -> Part | None:
        """The list of that name, if there is one."""
        if key not in self.data:
            return None
        return replace(self.part.at(key), broken=frozenset(int(index) for section, index in self._items if section == key))

    def _whole(self, key: str, part: Part | None) -> bool:
        """Whether the list tells all that there is, so that what is not in it is missing."""
        return (part.whole if part else key not in self.described) and key not in self.data.get("incomplete", {})

    def _mdevs(self, part: Part | None, cells: list[int] | None, guests: Part | None) -> tuple[MdevParent, ...] | None:
        """The parents of mediated devices, with those guests as owners that have them."""
        parents = read_mdevs(part, cells) if part else None
        owned = with_owners(parents or (), guests, whole=self._whole("mdev", part)) if guests else parents
        return owned if parents is not None else None

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
        known = cells is not None and self._whole("providers", described)
        node = self.name or NODE
        names = {node, *(f"{node}_NUMA{cell}" for cell in cells or ()), *(named(one.name, node) for one in providers)}
        return read_units(part, node, names if known else None)
