"""Reads one node of a host file into a machine: its guests, providers, units and sections."""

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from agent.model.devices import AssignableUnit, EncryptionFacts, MdevParent, PciAddress
from agent.model.facts import CpuFacts, Domain, Origin, Topology
from agent.model.instance import Flavor, GuestCell, PlacedCell
from agent.model.inventory import Record, problems
from agent.model.names import MAX_PROVIDER_NAME, ConsumerUuid, format_cpu_list, normal_uuid
from agent.yaml_files import Where, shown
from drivers.fake.base import (
    NODE,
    DescribedFacts,
    ProviderEntry,
    full_record,
    name_on_node,
    processor,
)
from drivers.fake.read_devices import Part, read_cells, read_devices, read_mdevs


def read_guest_cells(part: Part, topology: Topology | None) -> tuple[PlacedCell, ...]:
    """Return the placed cells, in the order of the file; ``topology`` has the host's cells,
    ``None`` if these are unknown.
    """
    placed: list[PlacedCell] = []
    for item in part.items():
        cell = _cell(item)
        owned = frozenset[int]().union(*(other.cell.cpus for other in placed))
        if twice := cell.cell.cpus & owned:
            item.wrong(
                (),
                f"the guest's CPUs {format_cpu_list(twice)} are in another cell of it too",
                "put every CPU into one cell",
            )
        if topology is not None:
            _check_place(item, cell, topology)
        placed.append(cell)
    return tuple(placed)


def _cell(part: Part) -> PlacedCell:
    """Return one placed cell; errors are noted."""
    data = part.data
    shared, dedicated, emulator = (
        part.cpus(key) if key in data else frozenset[int]()
        for key in ("shared", "dedicated", "emulator")
    )
    pins = {int(cpu): int(host_cpu) for cpu, host_cpu in data.get("pins", {}).items()}
    if both := shared & dedicated:
        part.wrong(
            ("dedicated",),
            f"the guest's CPUs {format_cpu_list(both)} are shared too",
            "a CPU is one or the other",
        )
    if odd := dedicated.symmetric_difference(pins):
        part.wrong(
            ("pins",),
            f"the guest's CPUs {format_cpu_list(odd)} are dedicated or pinned, but not both",
            "write the host CPU of each dedicated CPU of the guest, and of no other",
        )
    taken = [*pins.values(), *emulator]
    if twice := {cpu for cpu in taken if taken.count(cpu) > 1}:
        part.wrong(
            ("pins",),
            f"the guest has the host's CPUs {format_cpu_list(twice)} twice",
            "give every CPU of the guest one of its own",
        )
    cell = GuestCell(shared, dedicated, int(data["memory_mib"]))
    return PlacedCell(cell, int(data["host_cell"]), data.get("page_size_kib"), pins, emulator)


def _check_place(part: Part, placed: PlacedCell, topology: Topology) -> None:
    """Note errors in the placement of a cell on the host."""
    hosts = {cell.id: cell for cell in topology.cells}
    part.on_cell(("host_cell",), placed.host_cell, hosts)
    host = hosts.get(placed.host_cell)
    if host is not None and (far := placed.pinned_cpus - host.cpus):
        part.wrong(
            ("pins",),
            f"the CPUs {format_cpu_list(far)} are not of the host's cell {host.id}",
            f"its CPUs are {format_cpu_list(host.cpus) or 'none'}",
        )


def read_guests(
    part: Part, topology: Topology | None, devices: Collection[PciAddress] | None
) -> tuple[Domain, ...]:
    """Return the guests, in the order of the file. Resources that two guests have at once are no
    error, because real hosts show such guests. ``topology`` and ``devices``: what the host has that
    guests may name; None for what is unknown because it has errors.
    """
    guests: dict[ConsumerUuid, Domain] = {}
    for item in part.items():
        guest = _guest(item, topology, devices)
        item.put(
            ("uuid",),
            guests,
            guest.uuid,
            guest,
            f"the guest {guest.uuid}",
            "give every guest its own uuid",
        )
    return tuple(guests.values())


def with_owners(
    parents: tuple[MdevParent, ...], guests: Part, *, whole: bool
) -> tuple[MdevParent, ...]:
    """Return the parents with the guests as owners of their mediated devices. ``whole``: the file
    lists all parents, so an unknown device is an error.
    """
    owners: dict[str, ConsumerUuid | None] = {
        mdev.uuid: mdev.owner for parent in parents for mdev in parent.mdevs
    }
    for item in guests.items():
        guest = _uuid(item)
        for index, text in enumerate(item.data.get("mdevs", ())):
            device = normal_uuid(text)
            owner = owners.get(device)
            if whole and device not in owners:
                item.wrong(
                    ("mdevs", index),
                    f"there is no mediated device {device}",
                    "list it in mdev, below its parent",
                )
            elif owner not in (None, guest):
                item.wrong(
                    ("mdevs", index),
                    f"the device belongs to the guest {owner}",
                    "give every device to one guest",
                )
            owners[device] = guest
    return tuple(
        replace(
            parent, mdevs=tuple(replace(mdev, owner=owners[mdev.uuid]) for mdev in parent.mdevs)
        )
        for parent in parents
    )


def _guest(part: Part, topology: Topology | None, devices: Collection[PciAddress] | None) -> Domain:
    """Return one guest; errors are noted."""
    data = part.data
    cells = read_guest_cells(part.at("cells"), topology) if "cells" in data else ()
    return Domain(
        uuid=_uuid(part),
        name=data.get("name", _uuid(part)),
        memory_mib=_total(
            part, "memory_mib", sum(cell.cell.memory_mib for cell in cells) if cells else None
        )
        or 0,
        vcpus=_total(part, "vcpus", sum(len(cell.cell.cpus) for cell in cells) if cells else None),
        state=data.get("state", "running"),
        cells=cells,
        devices=_devices(part, devices),
        origin=_origin(part.at("origin")) if "origin" in data else None,
    )


def _uuid(part: Part) -> ConsumerUuid:
    return ConsumerUuid(normal_uuid(part.data["uuid"]))


def _total(part: Part, key: str, in_cells: int | None) -> int | None:
    """Return the file's figure for the whole guest; without one, the sum of its cells."""
    total: int | None = part.data.get(key)
    if total is None:
        if in_cells is None and key == "memory_mib":
            part.wrong((), f"lacks {key}, and there are no cells to take it from", f"add {key}")
        return in_cells
    if in_cells is not None and total != in_cells:
        part.wrong(
            (key,),
            f"is {total}, and the guest's cells have {in_cells}",
            f"leave {key} out, or write {in_cells}",
        )
    return total


def _devices(part: Part, known: Collection[PciAddress] | None) -> tuple[PciAddress, ...]:
    addresses: dict[PciAddress, None] = {}
    for index, text in enumerate(part.data.get("devices", ())):
        address = PciAddress.parse(text)
        part.put(
            ("devices", index),
            addresses,
            address,
            None,
            f"the device {address}",
            "name every device once",
        )
        if known is not None and address not in known:
            part.wrong(("devices", index), f"there is no device {address}", "list it in pci")
    return tuple(addresses)


def _origin(part: Part) -> Origin:
    data = part.data
    return Origin(
        _flavor(data["flavor"]),
        data["project_id"],
        data["user_id"],
        data.get("volume_backed", False),
        data.get("specs_known", True),
    )


def _flavor(data: Mapping[str, Any]) -> Flavor:
    disks = {key: int(data[key]) for key in ("root_gb", "ephemeral_gb", "swap_mb") if key in data}
    return Flavor(
        data["id"],
        data["name"],
        int(data["vcpus"]),
        int(data["memory_mb"]),
        **disks,
        extra_specs=dict(data.get("extra_specs", {})),
    )


def read_providers(
    part: Part, node: str, cells: Collection[int] | None
) -> tuple[ProviderEntry, ...]:
    """Return the listed providers of the node called ``node``, parents first.

    ``cells``: the cells that become providers, ``None`` if unknown.
    """
    entries: dict[str, ProviderEntry] = {}
    for item in part.items():
        name = name_on_node(item.data["name"], node)
        if len(name) > MAX_PROVIDER_NAME:
            item.wrong(
                ("name",),
                f"{shown(name)} has {len(name)} characters",
                f"write at most {MAX_PROVIDER_NAME}, the node's name included",
            )
        if name == node and "parent" in item.data:
            item.wrong(("parent",), "the node itself has no parent", "leave the parent out")
        item.put(
            ("name",),
            entries,
            name,
            _entry(item),
            shown(name),
            "give every provider its own name",
        )
    if part.whole and cells is not None:
        _check_parents(part, node, {node, *entries, *(f"{node}_NUMA{cell}" for cell in cells)})
    return _parents_first(part, node, entries)


def _entry(part: Part) -> ProviderEntry:
    """Return one provider; errors in its inventories are noted."""
    data = part.data
    inventories: dict[str, Record] = {}
    for name, record in data.get("inventories", {}).items():
        inventories[name] = full_record(record)
        for problem in problems(name, inventories[name]):
            part.wrong(
                ("inventories", name), problem, "correct the record, or leave out what is as usual"
            )
    return ProviderEntry(
        data["name"],
        data.get("parent", NODE),
        inventories,
        frozenset(data.get("traits", ())),
        frozenset(normal_uuid(aggregate) for aggregate in data.get("aggregates", ())),
    )


def _check_parents(part: Part, node: str, known: Collection[str]) -> None:
    """Note an error for each parent that is not ``known``."""
    for item in part.items():
        parent = name_on_node(item.data.get("parent", NODE), node)
        if parent not in known:
            close = difflib.get_close_matches(parent, known, 1)
            item.wrong(
                ("parent",),
                f"there is no provider {shown(parent)}",
                f"did you mean {close[0]}?" if close else "describe it as a provider too",
            )


def _parents_first(
    part: Part, node: str, entries: dict[str, ProviderEntry]
) -> tuple[ProviderEntry, ...]:
    """Return the entries ordered parents first; a cycle is noted as an error, and only the root's
    entry is returned.
    """
    graph = {
        name: {name_on_node(entry.parent, node)} - {node}
        for name, entry in entries.items()
        if name != node
    }
    root = (entries[node],) if node in entries else ()
    try:
        return root + tuple(
            entries[name] for name in TopologicalSorter(graph).static_order() if name in entries
        )
    except CycleError as error:
        names = [str(name) for name in error.args[1]]
        first = next(
            item for item in part.items() if name_on_node(item.data["name"], node) in names
        )
        first.wrong(
            ("parent",),
            f"the providers {', '.join(names[1:])} are each other's parents",
            "put one of them below the node",
        )
        return root


# Classes that the agent derives from other sections.
COUNTED = frozenset({"VCPU", "PCPU", "MEMORY_MB", "DISK_GB"})


def read_units(
    part: Part, node: str, providers: Collection[str] | None
) -> tuple[AssignableUnit, ...]:
    """Return the units of the node called ``node``, in the order of the file.

    ``providers``: the names of the providers that may count units, ``None`` if unknown.
    """
    units: dict[tuple[str, str, str], AssignableUnit] = {}
    for item in part.items():
        data = item.data
        provider, resource_class, identifier = (
            data.get("provider", NODE),
            data["resource_class"],
            data["identifier"],
        )
        if resource_class in COUNTED:
            item.wrong(
                ("resource_class",),
                f"{resource_class} is no class of units: the agent counts it by itself",
                "name another class, such as CUSTOM_X",
            )
        if providers is not None and (name := name_on_node(provider, node)) not in providers:
            item.wrong(
                ("provider",),
                f"there is no provider {shown(name)}",
                "describe it as a provider too, or name the node or a cell",
            )
        item.put(
            ("identifier",),
            units,
            (provider, resource_class, identifier),
            AssignableUnit(
                resource_class,
                identifier,
                provider.removeprefix(NODE) or None,
                data.get("metadata", {}),
            ),
            f"the unit {shown(identifier)} of {resource_class}",
            "give every unit its own identifier",
        )
    return tuple(units.values())


LISTS = ("cells", "guests", "mdev", "pci", "providers", "units")
NO_CELLS = Topology(())


class NodeReader:
    """Reads one node. Values with errors of structure, which are noted already, are left out.

    ``name`` is ``None`` if it has an error.
    """

    def __init__(self, part: Part, broken: Iterable[Where], host: str) -> None:
        depth = len(part.where)
        inside = [
            place[depth:] for place in broken if len(place) > depth and place[:depth] == part.where
        ]
        self._items = {place[:2] for place in inside if len(place) > 1 and place[0] in LISTS}
        gone = {place[0] for place in inside if place[:2] not in self._items}
        self.described: Mapping[str, Any] = part.data
        self.part = replace(
            part, data={key: value for key, value in part.data.items() if key not in gone}
        )
        self.data: Mapping[str, Any] = self.part.data
        self.name: str | None = None if "name" in gone else self.data.get("name", host)

    def machine(self) -> DescribedFacts:
        """Return the machine, with errors noted if it is inconsistent."""
        online = self.part.cpus("cpu", "online") if "online" in self.data.get("cpu", {}) else None
        part = self._list("cells")
        cells = read_cells(part, online) if part else None
        whole = self._whole("cells", part)
        ids = [cell.id for cell in cells.cells] if cells and whole else None
        pci, mdev = self._list("pci"), self._list("mdev")
        providers = self._providers((ids or []) if whole else None)
        hypervisor = self.data.get("hypervisor", {})
        cpu = self._cpu(online, cells, whole)
        # A file lists all that its host has: one with CPUs and no disk has no disk, whereas a
        # driver may have forgotten it.
        nothing = None if cpu is None else 0
        devices = read_devices(pci, ids) if pci else None
        guests = self._list("guests")
        present = {one.address for one in devices or ()} if self._whole("pci", pci) else None
        return DescribedFacts(
            hypervisor_type=hypervisor.get("type", "fake"),
            hypervisor_version=int(hypervisor.get("version", 1000)),
            cpu=cpu,
            memory_mib=int(self.data["memory_mib"])
            if "memory_mib" in self.data
            else cells.memory_mib
            if cells
            else nothing,
            disk_gib=int(self.data["disk_gib"]) if "disk_gib" in self.data else nothing,
            numa=cells,
            pci=devices,
            mdev=self._mdevs(mdev, ids, guests),
            encryption=EncryptionFacts(dict(self.data["encryption"]))
            if "encryption" in self.data
            else None,
            domains=read_guests(guests, (cells or NO_CELLS) if whole else None, present)
            if guests
            else None,
            units=self._units((ids or []) if whole else None, providers),
            incomplete=self.data.get("incomplete", {}),
            providers=providers,
        )

    def _list(self, key: str) -> Part | None:
        """Return the list of that name, None if there is none."""
        if key not in self.data:
            return None
        return replace(
            self.part.at(key),
            broken=frozenset(int(index) for section, index in self._items if section == key),
        )

    def _whole(self, key: str, part: Part | None) -> bool:
        """Whether the list is complete, so that what is not in it is missing."""
        return (part.whole if part else key not in self.described) and key not in self.data.get(
            "incomplete", {}
        )

    def _mdevs(
        self, part: Part | None, cells: list[int] | None, guests: Part | None
    ) -> tuple[MdevParent, ...] | None:
        """Return the parents of mediated devices, with the guests that have them as owners."""
        parents = read_mdevs(part, cells) if part else None
        owned = (
            with_owners(parents or (), guests, whole=self._whole("mdev", part))
            if guests
            else parents
        )
        return owned if parents is not None else None

    def _cpu(
        self, online: frozenset[int] | None, cells: Topology | None, whole: bool
    ) -> CpuFacts | None:
        """Return the processors; without a list of CPUs, those of the cells."""
        data = self.data.get("cpu", {})
        in_cells = (
            frozenset(cpu for cell in cells.cells for cpu in cell.cpus) if cells else frozenset()
        )
        if online is None and cells is None:
            if whole and "cpu" in self.data:
                self.part.wrong(
                    ("cpu",),
                    "lacks online, and there are no cells to take the CPUs from",
                    "add online, a CPU list such as '0-15'",
                )
            return None
        if cells and whole and online and online - in_cells:
            self.part.wrong(
                ("cpu", "online"),
                f"the CPUs {format_cpu_list(online - in_cells)} belong to no cell",
                "add them to a cell's cpus",
            )
        usual = processor(in_cells if online is None else online)
        described = {
            key: value for key, value in data.items() if key in ("architecture", "model", "vendor")
        }
        return replace(usual, **described, features=frozenset(data.get("features", usual.features)))

    def _providers(self, cells: list[int] | None) -> tuple[ProviderEntry, ...]:
        traits, part = self.data.get("traits"), self._list("providers")
        root = (ProviderEntry(NODE, traits=frozenset(traits)),) if traits else ()
        return root + (read_providers(part, self.name or NODE, cells) if part else ())

    def _units(
        self, cells: list[int] | None, providers: Iterable[ProviderEntry]
    ) -> tuple[AssignableUnit, ...] | None:
        """Return the units; they may be on the node, on its cells or on listed providers."""
        part, described = self._list("units"), self._list("providers")
        if part is None:
            return None
        known = cells is not None and self._whole("providers", described)
        node = self.name or NODE
        names = {
            node,
            *(f"{node}_NUMA{cell}" for cell in cells or ()),
            *(name_on_node(provider.name, node) for provider in providers),
        }
        return read_units(part, node, names if known else None)
