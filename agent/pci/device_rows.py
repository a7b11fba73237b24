"""The devices of a node as the records keep them: what is offered, and whatever else is on the same cards."""

from collections.abc import Iterator, Mapping, Sequence

from agent.model.devices import PciDevice
from agent.model.device_record import DeviceRecord, Serves
from agent.model.names import ProviderUuid
from agent.model.pci_address import PciAddress
from agent.pci.device_spec import DeviceSpec
from agent.pci.matching import Matched, matched
from agent.pci.present_devices import PresentDevices


def device_rows(node: ProviderUuid, present: PresentDevices, specs: Sequence[DeviceSpec]) -> tuple[DeviceRecord, ...]:
    """A free row for each device that ``specs`` offer and, so that one function is not given away while another of the
    same card is in use, for each of its relatives; by address."""
    offered = {one.device.address: one for one in matched(present, specs)}
    return tuple(_rows(node, present, offered))


def _rows(node: ProviderUuid, present: PresentDevices, offered: Mapping[PciAddress, Matched]) -> Iterator[DeviceRecord]:
    for device in present:
        one = offered.get(device.address)
        if one is not None:
            yield _row(node, device, "guests", _tags(one, present), one_time_use=one.one_time_use)
        elif any(relative.address in offered for relative in present.family(device)):
            # A PF that the host uses does so for its VFs as well: only a VF that it uses is in the way of its PF.
            yield _row(node, device, "host" if device.is_virtual_function and device.host_use is not None else "nobody", {})


def _row(node: ProviderUuid, device: PciDevice, serves: Serves, tags: Mapping[str, str], *, one_time_use: bool = False) -> DeviceRecord:
    parent = device.physical_function
    return DeviceRecord(
        node=node, address=str(device.address), vendor_id=device.vendor_id, product_id=device.product_id, type=device.type,
        parent=str(parent) if parent is not None else None, numa_node=device.numa_node, tags=tags, serves=serves,
        one_time_use=one_time_use,
    )  # fmt: skip


def _tags(one: Matched, present: PresentDevices) -> dict[str, str]:
    tags = dict(one.spec.tags)
    if one.device.type != "type-PCI":
        # Always there, so that a request that does not want such a device can say so.
        tags["remote_managed"] = "true" if one.spec.remote_managed else "false"
    interface = present.parent_ifname(one.device)
    return {**tags, "parent_ifname": interface} if interface is not None else tags
