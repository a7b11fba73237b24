"""Reads the parts of a host file that describe NUMA cells, PCI devices, mediated devices and
encryption contexts, with all errors and their places.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from agent.errors import ConfigError
from agent.model.devices import PCI, Mdev, MdevParent, PciAddress, PciDevice, parent_name
from agent.model.facts import Cell, PagePool, Topology, parse_cpu_list
from agent.model.names import ConsumerUuid, format_cpu_list, normal_uuid, number_of
from agent.yaml_files import Document, Where, shown
from drivers.fake.base import function_after

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Part:
    """The data at one place of a host file. All parts of a document share one list of errors."""

    document: Document
    where: Where
    data: Any
    errors: list[ConfigError]
    broken: frozenset[int] = frozenset()
    """Indexes of list items with errors of structure, which are noted already; the other items are
    still checked.
    """

    def items(self) -> Sequence["Part"]:
        """Return the items of a list as parts, without the broken ones."""
        return [self.at(index) for index in range(len(self.data)) if index not in self.broken]

    @property
    def whole(self) -> bool:
        """Whether no item of a list is left out, so that what is not in it is missing."""
        return not self.broken

    def wrong(self, steps: Where, what: str, remedy: str) -> None:
        """Note an error about the value ``steps`` below this part."""
        self.errors.append(self.document.error((*self.where, *steps), what, remedy))

    def put(
        self, steps: Where, found: dict[Key, Value], key: Key, value: Value, what: str, remedy: str
    ) -> None:
        """Put the value at ``steps`` among those ``found``; note an error if its ``key`` is there
        already.
        """
        if key in found:
            self.wrong(steps, f"{what} is here twice", remedy)
        found[key] = value

    def on_cell(self, steps: Where, cell: int | None, cells: Collection[int] | None) -> None:
        """Note an error if ``cell`` is none of ``cells``, which are None if unknown."""
        if cells is not None and cell is not None and cell not in cells:
            known = ", ".join(map(str, sorted(cells)))
            self.wrong(steps, f"there is no cell {cell}", f"cells: {known or 'none'}")

    def at(self, *steps: str | int) -> "Part":
        """Return the part ``steps`` below this one, which must exist."""
        data = self.data
        for step in steps:
            data = data[step]
        return Part(self.document, (*self.where, *steps), data, self.errors)

    def cpus(self, *steps: str | int) -> frozenset[int]:
        """Return the CPU list at ``steps``; empty, with an error noted, if it is none."""
        text = self.at(*steps).data
        try:
            return parse_cpu_list(text)
        except ValueError as error:
            self.wrong(steps, f"is {shown(text)}: {error}", "write a CPU list such as '0-3,8'")
            return frozenset()


def read_cells(part: Part, online: frozenset[int] | None) -> Topology:
    """Return the cells, ordered by id; only CPUs of ``online`` are online, all with ``None``."""
    cells: dict[int, Cell] = {}
    for item in part.items():
        cell = _cell(item, online)
        item.put(("id",), cells, cell.id, cell, f"the cell {cell.id}", "give every cell its own id")
    for item in part.items():
        _check_distances(item, cells, part.whole)
    return Topology(tuple(cells[number] for number in sorted(cells)))


def _cell(part: Part, online: frozenset[int] | None) -> Cell:
    """Return one cell; errors are noted."""
    data = part.data
    cpus = part.cpus("cpus")
    running = cpus if online is None else cpus & online
    return Cell(
        id=data["id"],
        cpus=cpus,
        memory_mib=int(data["memory_mib"]),
        pages=_pages(part),
        distances={
            int(other): int(distance) for other, distance in data.get("distances", {}).items()
        },
        siblings=_siblings(part, cpus, running),
        sockets=frozenset(data.get("sockets", ())),
    )


def _siblings(
    part: Part, cpus: frozenset[int], running: frozenset[int]
) -> tuple[frozenset[int], ...]:
    """Return the online threads of every core; without a list of siblings every CPU is a core of
    its own.
    """
    if "siblings" not in part.data:
        return tuple(frozenset({cpu}) for cpu in sorted(running))
    cores = [part.cpus("siblings", index) for index in range(len(part.data["siblings"]))]
    listed = [cpu for core in cores for cpu in core]
    if len(set(listed)) < len(listed):
        part.wrong(("siblings",), "a CPU is in two cores", "list every CPU once")
    if set(listed) != cpus:
        odd = format_cpu_list(cpus.symmetric_difference(listed))
        part.wrong(
            ("siblings",),
            f"the CPUs {odd} are in the cell or in its cores, but not in both",
            "list just the CPUs of the cell",
        )
    return tuple(core & running for core in cores if core & running)


def _pages(part: Part) -> tuple[PagePool, ...]:
    """Return the pools of pages; errors are noted."""
    pools: dict[int, PagePool] = {}
    for index, data in enumerate(part.data.get("pages", ())):
        pool = PagePool(
            int(data["size_kib"]),
            int(data["total"]),
            None if "free" not in data else int(data["free"]),
        )
        size = pool.size_kib
        part.put(("pages", index), pools, size, pool, f"the page size {size} KiB", "add the two up")
        if pool.free is not None and pool.free > pool.total:
            part.wrong(
                ("pages", index, "free"),
                f"{number_of(pool.free, 'page')} free, of {pool.total}",
                "write at most total",
            )
    needed = sum(pool.size_kib * pool.total for pool in pools.values())
    if needed > part.data["memory_mib"] * 1024:
        part.wrong(
            ("pages",),
            f"the pages need {needed // 1024} MiB, of {part.data['memory_mib']} MiB",
            "have fewer pages, or more memory",
        )
    return tuple(pools[size] for size in sorted(pools))


def _check_distances(part: Part, cells: dict[int, Cell], whole: bool) -> None:
    """Note errors in the distances of a cell."""
    for other, distance in part.data.get("distances", {}).items():
        part.on_cell(("distances", other), int(other), cells if whole else None)
        if int(other) == part.data["id"] and distance != 10:
            part.wrong(
                ("distances", other),
                f"the distance of the cell to itself is {distance}",
                "write 10",
            )


def read_mdevs(part: Part, cells: Collection[int] | None) -> tuple[MdevParent, ...]:
    """Return the parents of mediated devices, in the order of the file; ``cells`` are the ids of
    the described cells, None if unknown.
    """
    parents: dict[str, MdevParent] = {}
    devices: dict[str, Mdev] = {}
    for item in part.items():
        parent = _parent(item)
        item.put(
            ("parent",),
            parents,
            parent.name,
            parent,
            f"the parent {parent.name}",
            "give every parent once, with all its devices",
        )
        item.on_cell(("numa_node",), parent.numa_node, cells)
        for index, device in enumerate(parent.mdevs):
            if device.type not in parent.available:
                item.wrong(
                    ("mdevs", index, "type"),
                    f"the parent has no type {device.type!r}",
                    "list it under types, with 0 if no more can be made",
                )
            item.put(
                ("mdevs", index, "uuid"),
                devices,
                device.uuid,
                device,
                f"the device {device.uuid}",
                "give every device its own uuid",
            )
    return tuple(parents.values())


def _parent(part: Part) -> MdevParent:
    data = part.data
    name = parent_name(data["parent"])
    mdevs = tuple(
        Mdev(
            normal_uuid(mdev["uuid"]),
            mdev["type"],
            ConsumerUuid(normal_uuid(mdev["owner"])) if "owner" in mdev else None,
        )
        for mdev in data.get("mdevs", ())
    )
    # A virtual parent is the only device on its bus, which has its name.
    return MdevParent(
        name, PCI if ":" in name else name, dict(data["types"]), mdevs, data.get("numa_node")
    )


def read_devices(part: Part, cells: Collection[int] | None) -> tuple[PciDevice, ...]:
    """Return the PCI devices, ordered by address; ``cells`` are the ids of the described cells,
    None if unknown.
    """
    places: dict[PciAddress, Part] = {}
    devices: dict[PciAddress, PciDevice] = {}
    for item in part.items():
        for steps, device in _expanded(item):
            item.put(
                steps,
                devices,
                device.address,
                device,
                f"the device {device.address}",
                "give every device its own address",
            )
            if steps == ("address",):
                item.on_cell(("numa_node",), device.numa_node, cells)
            places[device.address] = item
    families = _families(devices, places, part.whole)
    return tuple(
        _with_functions(places[address], devices[address], families.get(address, ()))
        for address in sorted(devices)
    )


def _expanded(part: Part) -> Iterator[tuple[Where, PciDevice]]:
    """Yield the device itself, and the virtual functions of which the file has only the number;
    each with the step that gives its address.
    """
    data = part.data
    device = _device(data)
    yield ("address",), device
    wanted = data.get("virtual_functions")
    for number in range(1, int(wanted["count"]) + 1) if wanted else ():
        try:
            address = function_after(device.address, number)
        except ValueError as error:
            part.wrong(
                ("virtual_functions",),
                str(error),
                "have fewer, or list them one by one with physical_function",
            )
            return
        yield (
            ("virtual_functions",),
            PciDevice(
                address,
                device.vendor_id,
                _hex(wanted["product_id"]),
                class_code=device.class_code,
                numa_node=device.numa_node,
                physical_function=device.address,
            ),
        )


def _device(data: Mapping[str, Any]) -> PciDevice:
    return PciDevice(
        PciAddress.parse(data["address"]),
        _hex(data["vendor_id"]),
        _hex(data["product_id"]),
        class_code=int(_hex(data["class_code"]), 16) if "class_code" in data else None,
        numa_node=data.get("numa_node"),
        physical_function=PciAddress.parse(data["physical_function"])
        if "physical_function" in data
        else None,
        max_virtual_functions=int(data.get("max_virtual_functions", 0)),
        kernel_driver=data.get("kernel_driver"),
        virtual_function_product_id=_hex(data["virtual_functions"]["product_id"])
        if "virtual_functions" in data
        else None,
        netdev=data.get("netdev"),
        mac_address=data["mac_address"].lower() if "mac_address" in data else None,
        network_capabilities=tuple(data.get("network_capabilities", ())),
        serial_number=data.get("serial_number"),
        has_vdpa=data.get("vdpa", False),
        label=data.get("label"),
        host_use=data.get("host_use"),
    )


def _hex(digits: str | int) -> str:
    """Return hexadecimal digits as text: YAML reads digits without a letter as a number of the same
    digits.
    """
    return str(digits).lower()


def _families(
    devices: Mapping[PciAddress, PciDevice], places: Mapping[PciAddress, Part], whole: bool
) -> dict[PciAddress, tuple[PciAddress, ...]]:
    """Return the virtual functions of each physical one, and note an error for functions of devices
    that cannot have any.
    """
    families: dict[PciAddress, tuple[PciAddress, ...]] = {}
    for device in sorted(devices.values(), key=lambda device: device.address):
        above = device.physical_function
        if above is None:
            continue
        if devices[above].is_virtual_function if above in devices else whole:
            places[device.address].wrong(
                ("physical_function",),
                f"{above} is not a device that can have virtual functions",
                "name a device of this list that is none itself",
            )
        families[above] = (*families.get(above, ()), device.address)
    return families


def _with_functions(part: Part, device: PciDevice, functions: tuple[PciAddress, ...]) -> PciDevice:
    """Return the device with its virtual functions. Their number is also the maximum, unless the
    file gives a higher one.
    """
    most = device.max_virtual_functions or len(functions)
    if len(functions) > most:
        part.wrong(
            ("max_virtual_functions",),
            f"is {most}, with {number_of(len(functions), 'virtual function')} described",
            "write at least that many",
        )
    return replace(device, virtual_functions=functions, max_virtual_functions=most)
