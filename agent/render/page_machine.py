"""The machine on the page: its cells with every CPU, its huge pages and devices, and the guests
that hold them, from a node's documents. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agent.render.document import Document
from agent.render.page_guests import device_words, guest_label, guest_numbers, pages_of

CpuUse = Literal["free", "shared", "pinned", "offline"]
PageDeviceUse = Literal["free", "held", "reserved", "to be cleaned", "not offered", "host", "gone"]


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
    """One device with its virtual functions, or the mediated devices of one type."""

    address: str
    """Of mediated devices, that of their parent."""
    words: str
    """What it is."""
    use: PageDeviceUse
    holder: str
    """The guest that has it, of mediated devices how many are held and by whom; empty if none."""
    holders: tuple[int, ...]
    """The places of these guests."""
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
    pages: tuple[str, ...]
    """In words. Only huge pages, because ordinary ones are the rest of the memory."""
    devices: tuple[PageDevice, ...]


@dataclass(frozen=True, slots=True)
class PageMachine:
    """What is known of a node's machine."""

    cpu: str
    """Its CPUs in words."""
    cells: tuple[PageCell, ...]
    devices: tuple[PageDevice, ...]
    """Those of no cell."""
    problems: tuple[str, ...]


def machine_of(node: Document) -> PageMachine | None:
    """Return the machine of a node; None if its documents say nothing of it."""
    records, devices = node["records"], node["devices"]
    if records is None and not devices:
        return None
    numbers = guest_numbers(node)
    names = {uuid: guest_label(node, numbers, uuid) for uuid in numbers}
    owners = {claim["id"]: claim["instance"] for claim in node["claims"]}
    cards = _Cards(numbers, names, owners)
    cells = records["cells"] if records is not None else []
    here = {cell["id"] for cell in cells}
    holders = _holders(node, numbers)
    by_cell: dict[int | None, list[Document]] = {}
    for device in devices:
        cell = device["numa_node"] if device["numa_node"] in here else None
        by_cell.setdefault(cell, []).append(device)
    mdevs: dict[int | None, list[PageDevice]] = {}
    for source in records["mdevs"] if records is not None else ():
        cell = source["numa_node"] if source["numa_node"] in here else None
        mdevs.setdefault(cell, []).append(_mdev(source, node["claims"], numbers, names))
    labels = list(names.values())
    machine = PageMachine(
        cpu=_cpu_words(records["cpu"] if records is not None else None),
        cells=tuple(
            _cell(
                cell,
                holders,
                labels,
                (*cards.of(by_cell.get(cell["id"], [])), *mdevs.get(cell["id"], [])),
            )
            for cell in cells
        ),
        devices=(*cards.of(by_cell.get(None, [])), *mdevs.get(None, [])),
        problems=tuple(records["problems"]) if records is not None else (),
    )
    return machine if machine.cpu or machine.cells or machine.devices or machine.problems else None


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
        pages=tuple(_page_words(pages) for pages in cell["pages"] if pages["size_kib"] != smallest),
        devices=devices,
    )


def _page_words(pages: Document) -> str:
    reserved = f", {pages['reserved']} reserved" if pages["reserved"] else ""
    return f"{pages_of(pages['size_kib'])}: {pages['used']} used{reserved}, of {pages['total']}"


def _mdev(
    source: Document,
    claims: Sequence[Document],
    numbers: Mapping[str, int],
    names: Mapping[str, str],
) -> PageDevice:
    """Return the mediated devices of one type of one parent."""
    guests = [
        claim["instance"]
        for claim in claims
        for share in claim.get("mdevs", ())
        if (share["parent"], share["type"]) == (source["parent"], source["type"])
    ]
    held = f"{source['claimed']} of {source['total']} held"
    by = f" by {', '.join(names[guest] for guest in guests)}" if guests else ""
    return PageDevice(
        address=source["parent"],
        words=f"mediated {source['type']}",
        use="held" if source["claimed"] >= source["total"] else "free",
        holder=f"{held}{by}",
        holders=tuple(numbers[guest] for guest in guests),
    )


@dataclass(frozen=True, slots=True)
class _Cards:
    """The devices of a node as the page shows them."""

    numbers: Mapping[str, int]
    """The places of the guests by their uuids."""
    names: Mapping[str, str]
    """What the guests are called, by their uuids."""
    owners: Mapping[str, str]
    """The instance of each claim."""

    def of(self, devices: Sequence[Document]) -> tuple[PageDevice, ...]:
        """Return ``devices`` with the virtual functions below their cards. A function whose card is
        not among them stands by itself.
        """
        here = {device["address"] for device in devices}
        reserved = {device["address"] for device in devices if device["reserved"]}
        functions: dict[str | None, list[Document]] = {}
        for device in sorted(devices, key=lambda device: str(device["address"])):
            card = device["parent"] if device["parent"] in here else None
            functions.setdefault(card, []).append(device)

        def made(device: Document) -> PageDevice:
            holder = self.owners.get(device["holder"], device["holder"] or "")
            return PageDevice(
                address=device["address"],
                words=device_words(device),
                use=_device_use(device, reserved),
                holder=self.names.get(holder, holder),
                holders=(self.numbers[holder],) if holder in self.numbers else (),
                functions=tuple(map(made, functions.get(device["address"], ()))),
            )

        return tuple(map(made, functions.get(None, ())))


def _device_use(device: Document, reserved: set[str]) -> PageDeviceUse:
    checks: tuple[tuple[bool, PageDeviceUse], ...] = (
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
