"""What ``agent pci check`` shows of one node, and of the aliases, as documents."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agent.model.devices import PciDevice
from agent.model.device_record import DeviceRecord
from agent.model.names import ProviderUuid
from agent.model.pci_address import PciAddress
from agent.pci.alias import Alias, Aliases
from agent.pci.device_groups import device_groups
from agent.pci.device_rows import device_rows
from agent.pci.device_spec import DeviceSpec
from agent.pci.matching import Matched, matched
from agent.pci.present_devices import PresentDevices
from agent.pci.settings import PciSettings

Document = Mapping[str, Any]


def devices_document(node: ProviderUuid, devices: Iterable[PciDevice], settings: PciSettings) -> Document:
    """The devices of a node, and by each object of ``device_spec`` those that it offers."""
    present = PresentDevices.of(devices)
    offered = {one.device.address: one for one in matched(present, settings.specs)}
    rows = {row.address: row for row in device_rows(node, present, settings.specs)}
    return {
        "specs": [_spec_document(spec, offered) for spec in settings.specs],
        "devices": [_device_document(one, present, offered.get(one.address), rows.get(str(one.address))) for one in present],
    }


def aliases_document(aliases: Aliases) -> list[Document]:
    """The aliases, each with the request groups for one device that it stands for."""
    return [
        {
            "name": one.name,
            "numa_policy": one.policy,
            "alternatives": [alternative.spec for alternative in one.alternatives],
            "groups": list(_groups(one)),
        } for one in aliases.values()
    ]  # fmt: skip


def _groups(alias: Alias) -> Iterator[Document]:
    for alternative in alias.alternatives:
        for group in device_groups("", 1, alternative):
            yield {"resources": dict(group.resources), "required": sorted(group.required), "forbidden": sorted(group.forbidden)}


def _spec_document(spec: DeviceSpec, offered: Mapping[PciAddress, Matched]) -> Document:
    return {"spec": spec.place, "devices": [str(address) for address, one in offered.items() if one.spec is spec]}


def _device_document(device: PciDevice, present: PresentDevices, one: Matched | None, row: DeviceRecord | None) -> Document:
    parent = present.parent(device)
    return {
        "address": str(device.address), "vendor_id": device.vendor_id, "product_id": device.product_id, "type": device.type,
        "label": device.label, "numa_node": device.numa_node, "kernel_driver": device.kernel_driver,
        "parent": str(device.physical_function) if device.physical_function is not None else None,
        "netdev": device.netdev, "parent_ifname": present.parent_ifname(device), "mac_address": device.mac_address,
        "network_capabilities": list(device.network_capabilities), "serial_number": present.serial_number(device),
        "pf_mac_address": parent.mac_address if parent is not None else None, "vf_num": present.number(device),
        "host_use": device.host_use,
        "serves": row.serves if row is not None else None,
        "tags": dict(row.tags) if row is not None else None,
        "spec": one.spec.place if one is not None else None,
        "resource_class": one.resource_class if one is not None else None,
        "traits": sorted(one.traits) if one is not None else None,
    }  # fmt: skip
