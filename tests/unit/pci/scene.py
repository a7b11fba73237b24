"""The host of the tests of PCI devices: two plain devices, two network cards, one with two and one
virtual functions.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from agent.errors import ConfigError
from agent.model.devices import PciAddress, PciDevice
from agent.pci.device_spec import DeviceSpec, device_specs
from agent.pci.settings import Matched, PresentDevices, match_devices

NAMES = {
    "P0": "0000:81:00.0",
    "P1": "0000:81:01.0",
    "F2": "0000:81:02.0",
    "V20": "0000:81:02.1",
    "V21": "0000:81:02.2",
    "F3": "0000:82:03.0",
    "V30": "0000:82:03.1",
    "V31": "0000:82:03.2",
    "V32": "0000:82:03.3",
    "V33": "0000:82:03.4",
}


def address(name: str) -> PciAddress:
    return PciAddress.parse(NAMES.get(name, name))


def plain(name: str, **facts: Any) -> PciDevice:
    return PciDevice(
        address(name), **{"vendor_id": "8086", "product_id": "1533", "numa_node": 0, **facts}
    )


def physical(name: str, *functions: str, **facts: Any) -> PciDevice:
    fields = {
        "product_id": "1572",
        "virtual_functions": tuple(map(address, functions)),
        "max_virtual_functions": 8,
    }
    return plain(name, **{**fields, **facts})


def virtual(name: str, parent: str, **facts: Any) -> PciDevice:
    return plain(name, **{"product_id": "154c", "physical_function": address(parent), **facts})


def host() -> dict[str, PciDevice]:
    second = {name: virtual(name, "F3", numa_node=1) for name in ("V30", "V31", "V32", "V33")}
    return {
        "P0": plain("P0"),
        "P1": plain("P1"),
        "F2": physical("F2", "V20", "V21"),
        "V20": virtual("V20", "F2"),
        "V21": virtual("V21", "F2"),
        "F3": physical("F3", *second, numa_node=1),
        **second,
    }


def present(**more: PciDevice) -> PresentDevices:
    """The host, with other or more devices."""
    return PresentDevices.of({**host(), **more}.values())


def parsed(*values: Any, report: bool = True) -> tuple[tuple[DeviceSpec, ...], list[ConfigError]]:
    return device_specs([json.dumps(value) for value in values], report=report)


def specs(*values: Any, report: bool = True) -> tuple[DeviceSpec, ...]:
    found, errors = parsed(*values, report=report)
    assert errors == []
    return found


def errors(*values: Any, report: bool = True) -> list[str]:
    """What is wrong with the values, all with a remedy."""
    found = parsed(*values, report=report)[1]
    assert all(one.remedy and "\n" not in one.message for one in found)
    return [one.message.removeprefix("[pci] device_spec ") for one in found]


def by_name(found: Iterable[Matched]) -> Mapping[str, Matched]:
    names = {text: name for name, text in NAMES.items()}
    return {names.get(str(one.device.address), str(one.device.address)): one for one in found}


def offered(
    *values: Any, on: PresentDevices | None = None, report: bool = True
) -> Mapping[str, Matched]:
    """The devices that the values offer, by their names in the scenarios."""
    return by_name(match_devices(on or present(), specs(*values, report=report)))
