"""The guests of a host file."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent.model.domain import Domain, Origin
from agent.model.flavor import Flavor
from agent.model.mdev import MdevParent
from agent.model.names import ConsumerUuid, normal_uuid
from agent.model.pci_address import PciAddress
from agent.model.topology import Topology
from drivers.fake.part import Part
from drivers.fake.read_guest_cells import read_guest_cells


@dataclass(frozen=True, slots=True)
class Around:
    """What the host has that guests may name; ``None`` for what is not known, because it is wrong itself."""

    topology: Topology | None
    devices: Collection[PciAddress] | None


def read_guests(part: Part, around: Around) -> tuple[Domain, ...]:
    """The guests, in the order of the file. What two of them have at once is their own affair: hosts show such things."""
    guests: dict[ConsumerUuid, Domain] = {}
    for item in part.items():
        guest = _guest(item, around)
        if guest.uuid in guests:
            item.wrong(("uuid",), f"the guest {guest.uuid} is here twice", "give every guest its own uuid")
        guests[guest.uuid] = guest
    return tuple(guests.values())


def with_owners(parents: tuple[MdevParent, ...], guests: Part, *, whole: bool) -> tuple[MdevParent, ...]:
    """The parents of mediated devices, each of which belongs to the guest that has it. ``whole``: there are no others than these."""
    owners: dict[str, ConsumerUuid | None] = {one.uuid: one.owner for parent in parents for one in parent.mdevs}
    for item in guests.items():
        guest = _uuid(item)
        for index, text in enumerate(item.data.get("mdevs", ())):
            device = normal_uuid(text)
            owner = owners.get(device)
            if whole and device not in owners:
                item.wrong(("mdevs", index), f"there is no mediated device {device}", "list it in mdev, below its parent")
            elif owner not in (None, guest):
                item.wrong(("mdevs", index), f"the device belongs to the guest {owner}", "give every device to one guest")
            owners[device] = guest
    return tuple(replace(parent, mdevs=tuple(replace(one, owner=owners[one.uuid]) for one in parent.mdevs)) for parent in parents)


def _guest(part: Part, around: Around) -> Domain:
    data = part.data
    cells = read_guest_cells(part.at("cells"), around.topology) if "cells" in data else ()
    return Domain(
        uuid=_uuid(part),
        name=data.get("name", _uuid(part)),
        memory_mib=_total(part, "memory_mib", sum(one.cell.memory_mib for one in cells) if cells else None) or 0,
        vcpus=_total(part, "vcpus", sum(len(one.cell.cpus) for one in cells) if cells else None),
        state=data.get("state", "running"),
        cells=cells,
        devices=_devices(part, around.devices),
        origin=_origin(part.at("origin")) if "origin" in data else None,
    )


def _uuid(part: Part) -> ConsumerUuid:
    return ConsumerUuid(normal_uuid(part.data["uuid"]))


def _total(part: Part, key: str, in_cells: int | None) -> int | None:
    """What the file says of the whole guest; that of its cells together if it does not."""
    said: int | None = part.data.get(key)
    if said is None:
        if in_cells is None and key == "memory_mib":
            part.wrong((), f"lacks {key}, and there are no cells to take it from", f"add {key}")
        return in_cells
    if in_cells is not None and said != in_cells:
        part.wrong((key,), f"is {said}, and the guest's cells have {in_cells}", f"leave {key} out, or write {in_cells}")
    return said


def _devices(part: Part, known: Collection[PciAddress] | None) -> tuple[PciAddress, ...]:
    addresses: dict[PciAddress, None] = {}
    for index, text in enumerate(part.data.get("devices", ())):
        address = PciAddress.parse(text)
        if address in addresses:
            part.wrong(("devices", index), f"the device {address} is here twice", "name every device once")
        if known is not None and address not in known:
            part.wrong(("devices", index), f"there is no device {address}", "list it in pci")
        addresses[address] = None
    return tuple(addresses)


def _origin(part: Part) -> Origin:
    data = part.data
    return Origin(_flavor(data["flavor"]), data["project_id"], data["user_id"], data.get("volume_backed", False))


def _flavor(data: Mapping[str, Any]) -> Flavor:
    disks = {key: int(data[key]) for key in ("root_gb", "ephemeral_gb", "swap_mb") if key in data}
    return Flavor(data["id"], data["name"], int(data["vcpus"]), int(data["memory_mb"]), **disks, extra_specs=dict(data.get("extra_specs", {})))
