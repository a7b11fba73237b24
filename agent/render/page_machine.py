"""The machine on the page: its cells with every CPU, its huge pages and devices, and the guests
that hold them, from a node's documents. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agent.model.topology import format_cpu_list

Document = Mapping[str, Any]
CpuUse = Literal["free", "shared", "pinned", "offline"]
DeviceUse = Literal["free", "held", "reserved", "to be cleaned", "not offered", "host", "gone"]


@dataclass(frozen=True, slots=True)
class Square:
    """One CPU of the host."""

    cpu: int
    use: CpuUse
    """``free`` is a dedicated CPU that no guest has."""
    holders: tuple[int, ...] = ()
    """The places of its guests in the list of guests."""
    text: str = ""
    """Use and holders in words."""


@dataclass(frozen=True, slots=True)
class PageDevice:
    """One device, with its virtual functions."""

    address: str
    kind: str
    ids: str
    use: DeviceUse
    holder: str
    functions: tuple["PageDevice", ...] = ()


@dataclass(frozen=True, slots=True)
class PageCell:
    """One NUMA cell."""

    id: int
    memory_mb: int
    memory_mb_used: int
    cores: tuple[tuple[Square, ...], ...]
    """The CPUs, siblings together."""
    shared_used: int
    pages: tuple[Document, ...]
    """Only huge pages, because ordinary ones are the rest of the memory."""
    mdevs: tuple[str, ...]
    """The parents of mediated devices, in words."""
    devices: tuple[PageDevice, ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """What is known of a node's machine."""

    cpu: str
    """Its CPUs in words."""
    cells: tuple[PageCell, ...]
    mdevs: tuple[str, ...]
    """The parents of mediated devices of no cell, in words."""
    devices: tuple[PageDevice, ...]
    """Those of no cell."""
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PageGuest:
    """One guest that the hypervisor shows, or that has a claim."""

    number: int
    name: str
    uuid: str
    state: str
    vcpus: int | None
    memory_mb: int | None
    flavor: str
    cells: tuple[str, ...]
    devices: tuple[str, ...]
    record: str
    """How its record stands, in a word."""
    refusals: tuple[Document, ...]


def machine_of(node: Document) -> Machine | None:
    """Return the machine of a node; None if its documents say nothing of it."""
    records, devices = node["records"], node["devices"]
    if records is None and not devices:
        return None
    numbers = _numbers(node)
    names = {claim["id"]: _name(numbers, node, claim["instance"]) for claim in node["claims"]}
    cells = records["cells"] if records is not None else []
    here = {cell["id"] for cell in cells}
    mdevs = records["mdevs"] if records is not None else []
    holders = _holders(node, numbers)
    by_cell: dict[int | None, list[Document]] = {}
    for device in devices:
        cell = device["numa_node"] if device["numa_node"] in here else None
        by_cell.setdefault(cell, []).append(device)
    labels = [_label(guest) for guest in page_guests(node)]
    return Machine(
        cpu=_cpu_words(records["cpu"] if records is not None else None),
        cells=tuple(
            _cell(
                cell,
                holders,
                labels,
                _mdevs(mdevs, {cell["id"]}),
                _cards(by_cell.get(cell["id"], []), names),
            )
            for cell in cells
        ),
        mdevs=_mdevs(mdevs, {None, *(source["numa_node"] for source in mdevs)} - here),
        devices=_cards(by_cell.get(None, []), names),
        problems=tuple(records["problems"]) if records is not None else (),
    )


def page_guests(node: Document) -> tuple[PageGuest, ...]:
    """Return the guests of a node: those that the hypervisor shows, then the claims' instances that
    it does not show.
    """
    claims: dict[str, list[Document]] = {}
    for claim in node["claims"]:
        claims.setdefault(claim["instance"], []).append(claim)
    shown = {guest["uuid"]: guest for guest in node["guests"]}
    return tuple(
        _guest(number, uuid, shown.get(uuid), claims.get(uuid, ()))
        for uuid, number in _numbers(node).items()
    )


def _numbers(node: Document) -> dict[str, int]:
    """Return the place of each guest in the list of guests, by its uuid."""
    uuids = [
        *(guest["uuid"] for guest in node["guests"]),
        *(claim["instance"] for claim in node["claims"]),
    ]
    return {uuid: number for number, uuid in enumerate(dict.fromkeys(uuids))}


def _guest(number: int, uuid: str, shown: Document | None, claims: Sequence[Document]) -> PageGuest:
    held = [cell for claim in claims for cell in claim["cells"]]
    cells = held or (shown["cells"] if shown else [])
    addresses = {device["address"] for claim in claims for device in claim["devices"]}
    addresses |= set(shown["devices"]) if shown else set()
    amounts = next((claim["amounts"] for claim in claims if claim["amounts"]["vcpus"]), None)
    return PageGuest(
        number=number,
        name=shown["name"] if shown else "",
        uuid=uuid,
        state=shown["state"] if shown else "not shown by the hypervisor",
        vcpus=shown["vcpus"] if shown else (amounts["vcpus"] if amounts else None),
        memory_mb=shown["memory_mb"] if shown else (amounts["memory_mb"] if amounts else None),
        flavor=(shown["flavor"] or "") if shown else "",
        cells=tuple(map(_cell_words, cells)),
        devices=tuple(sorted(addresses)),
        record=shown["outcome"] if shown else "claimed",
        refusals=tuple(shown["refusals"]) if shown else (),
    )


def _label(guest: PageGuest) -> str:
    return guest.name or guest.uuid


def _name(numbers: Mapping[str, int], node: Document, instance: str) -> str:
    place = numbers.get(instance)
    guests = node["guests"]
    named = place is not None and place < len(guests) and guests[place]["uuid"] == instance
    return (guests[place]["name"] if named else "") or instance


def _cell_words(cell: Document) -> str:
    """Return a guest's cell in words: where it is, its memory, and its host CPUs."""
    parts = [f"cell {cell['host_cell']}: {cell['memory_mb']} MiB"]
    if cell["page_size_kib"]:
        parts.append(f"pages of {cell['page_size_kib']} KiB")
    if cell["pins"]:
        pins = ", ".join(f"{guest}→{host}" for guest, host in cell["pins"].items())
        parts.append(f"CPUs pinned (guest→host) {pins}")
    if cell["shared"]:
        parts.append(f"CPUs {format_cpu_list(set(cell['shared']))} on shared host CPUs")
    if cell["emulator"]:
        parts.append(f"emulator on {format_cpu_list(set(cell['emulator']))}")
    return ", ".join(parts)


def _holders(node: Document, numbers: Mapping[str, int]) -> dict[int, list[int]]:
    """Return the guests that are pinned to each host CPU, by their places."""
    claimed = {claim["instance"] for claim in node["claims"] if claim["cells"]}
    owned = [(claim["instance"], claim["cells"]) for claim in node["claims"]]
    owned += [
        (guest["uuid"], guest["cells"]) for guest in node["guests"] if guest["uuid"] not in claimed
    ]
    found: dict[int, list[int]] = {}
    for uuid, cells in owned:
        for cell in cells:
            for cpu in {*cell["pins"].values(), *cell["emulator"]}:
                places = found.setdefault(cpu, [])
                if numbers[uuid] not in places:
                    places.append(numbers[uuid])
    return found


def _cell(
    cell: Document,
    holders: Mapping[int, Sequence[int]],
    labels: Sequence[str],
    mdevs: tuple[str, ...],
    devices: tuple[PageDevice, ...],
) -> PageCell:
    shared, dedicated = set(cell["shared"]), set(cell["dedicated"])
    # Not in the documents of an agent of an earlier version, which a newer command may ask.
    offline = {*cell["degraded"], *cell.get("offline", ())}
    pinned = set(cell["pinned"])
    every = shared | dedicated | offline | pinned
    cores = [[cpu for cpu in core if cpu in every] for core in cell["siblings"]]
    lone = sorted(every.difference(*cores))
    smallest = min((pages["size_kib"] for pages in cell["pages"]), default=None)

    def square(cpu: int) -> Square:
        places = tuple(holders.get(cpu, ()))
        use: CpuUse = "free"
        if cpu in offline:
            use = "offline"
        elif cpu in pinned or places:
            use = "pinned"
        elif cpu in shared:
            use = "shared"
        who = ", ".join(labels[place] for place in places)
        also = f", pinned by {who}" if who else ""
        words = {
            "free": "dedicated, free",
            "shared": "shared",
            "pinned": "dedicated",
            "offline": "offline",
        }
        return Square(cpu, use, places, f"{words[use]}{also}")

    return PageCell(
        id=cell["id"],
        memory_mb=cell["memory_mb"],
        memory_mb_used=cell["memory_mb_used"],
        cores=tuple(
            tuple(map(square, core))
            for core in sorted([*(core for core in cores if core), *([cpu] for cpu in lone)])
        ),
        shared_used=cell["shared_used"],
        pages=tuple(pages for pages in cell["pages"] if pages["size_kib"] != smallest),
        mdevs=mdevs,
        devices=devices,
    )


def _mdevs(sources: Sequence[Document], cells: set[int | None]) -> tuple[str, ...]:
    return tuple(
        f"mediated devices {source['type']} of {source['parent']}: "
        f"{source['claimed']} of {source['total']} claimed"
        for source in sources
        if source["numa_node"] in cells
    )


def _cards(devices: Sequence[Document], names: Mapping[str, str]) -> tuple[PageDevice, ...]:
    """Return the devices with the virtual functions below their cards. A function whose card is not
    among ``devices`` stands by itself.
    """
    here = {device["address"] for device in devices}
    reserved = {device["address"] for device in devices if device["reserved"]}
    ordered = sorted(devices, key=lambda device: str(device["address"]))

    def made(device: Document) -> PageDevice:
        inner = [one for one in ordered if one["parent"] == device["address"]]
        return PageDevice(
            address=device["address"],
            kind=device["type"].removeprefix("type-"),
            ids=f"{device['vendor_id']}:{device['product_id']}",
            use=_device_use(device, reserved),
            holder=names.get(device["holder"], device["holder"] or ""),
            functions=tuple(map(made, inner)),
        )

    return tuple(made(device) for device in ordered if device["parent"] not in here)


def _device_use(device: Document, reserved: set[str]) -> DeviceUse:
    checks: tuple[tuple[bool, DeviceUse], ...] = (
        (device["holder"] is not None, "held"),
        (not device["present"], "gone"),
        (device["serves"] == "host", "host"),
        (device["serves"] == "nobody", "not offered"),
        (device["used"], "to be cleaned"),
        (bool({device["address"], device["parent"]} & reserved), "reserved"),
    )
    return next((use for holds, use in checks if holds), "free")


def _cpu_words(cpu: Document | None) -> str:
    return " ".join(filter(None, (cpu["architecture"], cpu["vendor"], cpu["model"]))) if cpu else ""
