"""A host file as machines: read, checked as a whole, every error told at once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent.errors import ConfigError, ConfigErrors
from agent.model.cpu_list import format_cpu_list
from agent.model.facts import CpuFacts
from agent.model.names import normal_uuid
from agent.model.topology import Topology
from drivers.fake.document import Document, Where, parse, shown
from drivers.fake.entry import NODE, ProviderEntry, named
from drivers.fake.machine import Machine, processor
from drivers.fake.part import Part
from drivers.fake.read_cells import read_cells
from drivers.fake.read_devices import read_devices
from drivers.fake.read_providers import read_providers
from drivers.fake.schema import schema_errors


@dataclass(frozen=True, slots=True)
class HostFile:
    """The machines by node name, the uuids of those nodes that have one in the file, and the driver's capabilities.

    ``single``: the file describes one node and not a list.
    """

    machines: Mapping[str, Machine]
    uuids: Mapping[str, str]
    capabilities: Mapping[str, bool]
    single: bool


def read_host_file(content: bytes, file: str, host: str) -> HostFile:
    """Read a host file; a node without a name is called ``host``.

    :raises ConfigErrors: everything that is wrong with it.
    """
    document = parse(content, file)
    structure = schema_errors(document)
    errors: list[ConfigError] = [*document.errors, *(error for found in structure.values() for error in found)]
    if () in structure:
        raise ConfigErrors(errors)
    single = "nodes" not in document.data
    places: list[Where] = [()] if single else _nodes(document, structure)
    nodes = [_Node(document, place, host, structure.keys(), errors) for place in places]
    machines = [(node.name, node.machine()) for node in nodes]
    _check_names(nodes, dict(machines))
    if errors:
        raise ConfigErrors(sorted(errors, key=lambda error: error.data["line"]))
    return HostFile(
        machines=dict(machines),
        uuids={node.name: normal_uuid(node.data["uuid"]) for node in nodes if "uuid" in node.data},
        capabilities=document.data.get("capabilities", {}),
        single=single,
    )


def _nodes(document: Document, structure: Mapping[Where, Any]) -> list[Where]:
    if ("nodes",) in structure:
        return []
    return [place for index in range(len(document.data["nodes"])) if (place := ("nodes", index)) not in structure]


class _Node:
    """One node of the file. Sections whose structure is wrong are passed over: their errors are known already."""

    def __init__(self, document: Document, where: Where, host: str, broken: Iterable[Where], errors: list[ConfigError]) -> None:
        whole = Part(document, (), document.data, errors).at(*where)
        sections = {place[len(where)] for place in broken if place[: len(where)] == where and len(place) > len(where)}
        self.data: Mapping[str, Any] = {key: value for key, value in whole.data.items() if key not in sections}
        self.part = replace(whole, data=self.data)
        self.name: str = self.data.get("name", host)

    def machine(self) -> Machine:
        online = self.part.cpus("cpu", "online") if "online" in self.data.get("cpu", {}) else None
        cells = read_cells(self.part.at("cells"), online) if "cells" in self.data else None
        ids = None if cells is None else [cell.id for cell in cells.cells]
        hypervisor = self.data.get("hypervisor", {})
        return Machine(
            hypervisor_type=hypervisor.get("type", "fake"),
            hypervisor_version=int(hypervisor.get("version", 1000)),
            cpu=self._cpu(online, cells),
            memory_mib=self._memory(cells),
            disk_gib=self.data.get("disk_gib"),
            numa=cells,
            pci=read_devices(self.part.at("pci"), ids) if "pci" in self.data else None,
            incomplete=self.data.get("incomplete", {}),
            providers=self._providers(ids or []),
        )

    def _cpu(self, online: frozenset[int] | None, cells: Topology | None) -> CpuFacts | None:
        """The processors; those of the cells if nothing else is said."""
        data = self.data.get("cpu")
        in_cells = frozenset(cpu for cell in cells.cells for cpu in cell.cpus) if cells else frozenset()
        if online is None and cells is None:
            if data is not None:
                self.part.wrong(("cpu",), "lacks online, and there are no cells to take the CPUs from", "add online, a CPU list such as '0-15'")
            return None
        if online is not None and cells is not None and online - in_cells:
            self.part.wrong(("cpu", "online"), f"the CPUs {format_cpu_list(online - in_cells)} belong to no cell", "add them to a cell's cpus")
        usual = processor(in_cells if online is None else online)
        said = {key: value for key, value in (data or {}).items() if key in ("architecture", "model", "vendor")}
        return replace(usual, **said, features=frozenset(data["features"]) if data and "features" in data else usual.features)

    def _memory(self, cells: Topology | None) -> int | None:
        """The memory; that of the cells if nothing else is said."""
        if "memory_mib" in self.data:
            return int(self.data["memory_mib"])
        return cells.memory_mib if cells else None

    def _providers(self, cells: list[int]) -> tuple[ProviderEntry, ...]:
        traits = self.data.get("traits")
        root = (ProviderEntry(NODE, traits=frozenset(traits)),) if traits else ()
        return root + (read_providers(self.part.at("providers"), self.name, cells) if "providers" in self.data else ())


def _check_names(nodes: list[_Node], machines: Mapping[str, Machine]) -> None:
    """Names and uuids are unique in all of Placement, so they must be in one file."""
    names: dict[str, _Node] = {}
    uuids: set[str] = set()
    for node in nodes:
        if node.name in names:
            node.part.wrong(("name",), f"two nodes are called {shown(node.name)}", "give every node its own name")
        if node.data.get("uuid", "").lower() in uuids:
            node.part.wrong(("uuid",), "another node has this uuid", "give every node its own uuid")
        names[node.name] = node
        uuids |= {node.data["uuid"].lower()} if "uuid" in node.data else set()
    for node in nodes:
        for entry in machines[node.name].providers:
            other = names.setdefault(named(entry.name, node.name), node)
            if other is not node:
                remedy = f"use {NODE} in the provider's name"
                node.part.wrong(("providers",), f"{shown(entry.name)} is the name of a provider of the node {other.name} too", remedy)
