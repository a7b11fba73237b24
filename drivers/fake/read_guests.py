"""Reads the guests of a host file."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent.model.devices import PciAddress
from agent.model.facts import Domain, Origin
from agent.model.host_units import MdevParent
from agent.model.instance import Flavor, GuestCell, PlacedCell
from agent.model.names import ConsumerUuid, normal_uuid
from agent.model.topology import Topology, format_cpu_list
from drivers.fake.read_devices import Part


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


@dataclass(frozen=True, slots=True)
class Around:
    """What the host has that guests may name; ``None`` for a section that is unknown because it has
    errors.
    """

    topology: Topology | None
    devices: Collection[PciAddress] | None


def read_guests(part: Part, around: Around) -> tuple[Domain, ...]:
    """Return the guests, in the order of the file. Resources that two guests have at once are no
    error, because real hosts show such guests.
    """
    guests: dict[ConsumerUuid, Domain] = {}
    for item in part.items():
        guest = _guest(item, around)
        item.once(
            ("uuid",),
            guest.uuid,
            guests,
            f"the guest {guest.uuid}",
            "give every guest its own uuid",
        )
        guests[guest.uuid] = guest
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


def _guest(part: Part, around: Around) -> Domain:
    """Return one guest; errors are noted."""
    data = part.data
    cells = read_guest_cells(part.at("cells"), around.topology) if "cells" in data else ()
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
        devices=_devices(part, around.devices),
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
        part.once(
            ("devices", index),
            address,
            addresses,
            f"the device {address}",
            "name every device once",
        )
        if known is not None and address not in known:
            part.wrong(("devices", index), f"there is no device {address}", "list it in pci")
        addresses[address] = None
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
