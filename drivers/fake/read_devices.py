"""Reads the PCI devices, mediated devices and encryption contexts of a host file."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from agent.model.devices import PciAddress, PciDevice
from agent.model.encryption import EncryptionFacts
from agent.model.mdev import PCI, Mdev, MdevParent, parent_name
from agent.model.names import ConsumerUuid, normal_uuid, number_of
from agent.yaml_files.document import Where
from drivers.fake.machine import function_after
from drivers.fake.part import Part


def read_mdevs(part: Part, cells: Collection[int] | None) -> tuple[MdevParent, ...]:
    """Return the parents of mediated devices, in the order of the file; ``cells`` are the ids of
    the described cells, None if unknown.
    """
    parents: dict[str, MdevParent] = {}
    devices = Counter[str]()
    for item in part.items():
        parent = _parent(item)
        if parent.name in parents:
            item.wrong(
                ("parent",),
                f"the parent {parent.name} is here twice",
                "give every parent once, with all its devices",
            )
        if cells is not None and parent.numa_node is not None and parent.numa_node not in cells:
            item.wrong(
                ("numa_node",),
                f"there is no cell {parent.numa_node}",
                f"cells: {', '.join(str(cell) for cell in sorted(cells))}",
            )
        for index, device in enumerate(parent.mdevs):
            if device.type not in parent.available:
                item.wrong(
                    ("mdevs", index, "type"),
                    f"the parent has no type {device.type!r}",
                    "list it under types, with 0 if no more can be made",
                )
            if devices[device.uuid]:
                item.wrong(
                    ("mdevs", index, "uuid"),
                    f"the device {device.uuid} is here twice",
                    "give every device its own uuid",
                )
            devices[device.uuid] += 1
        parents[parent.name] = parent
    return tuple(parents.values())


def read_encryption(part: Part) -> EncryptionFacts:
    """Return the encryption techniques of the file."""
    return EncryptionFacts(dict(part.data))


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
            if device.address in devices:
                item.wrong(
                    steps,
                    f"the device {device.address} is here twice",
                    "give every device its own address",
                )
            elif (
                cells is not None and device.numa_node is not None and device.numa_node not in cells
            ):
                known = ", ".join(str(cell) for cell in sorted(cells))
                item.wrong(
                    ("numa_node",), f"there is no cell {device.numa_node}", f"cells: {known}"
                )
            places[device.address] = item
            devices[device.address] = device
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
            remedy = "name a device of this list that is none itself"
            places[device.address].wrong(
                ("physical_function",),
                f"{above} is not a device that can have virtual functions",
                remedy,
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
