"""Matching of devices and ``device_spec``: which object of the option offers which device. Whether
a device is a PF is taken from the facts each time.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Self

import os_traits

from agent.model.devices import PciAddress, PciDevice
from agent.pci.device_spec import DeviceSpec
from agent.pci.option_value import class_of_ids


@dataclass(frozen=True, slots=True)
class PresentDevices:
    """All devices that a host shows, by address and by network interface."""

    by_address: Mapping[PciAddress, PciDevice]
    by_netdev: Mapping[str, PciDevice]
    children: Mapping[PciAddress, tuple[PciDevice, ...]]
    """The VFs of each PF."""

    @classmethod
    def of(cls, devices: Iterable[PciDevice]) -> Self:
        """Return the devices in the order of their addresses, with the relations of PFs and VFs."""
        ordered = sorted(devices, key=attrgetter("address"))
        children: dict[PciAddress, tuple[PciDevice, ...]] = {}
        for device in ordered:
            if device.physical_function is not None:
                children[device.physical_function] = (
                    *children.get(device.physical_function, ()),
                    device,
                )
        return cls(
            {device.address: device for device in ordered},
            {device.netdev: device for device in ordered if device.netdev is not None},
            children,
        )

    def __iter__(self) -> Iterator[PciDevice]:
        return iter(self.by_address.values())

    def parent(self, device: PciDevice) -> PciDevice | None:
        """Return the PF of a VF, if the host shows it."""
        return (
            self.by_address.get(device.physical_function)
            if device.physical_function is not None
            else None
        )

    def family(self, device: PciDevice) -> tuple[PciDevice, ...]:
        """Return the device with its PF and all VFs of that PF."""
        head = device.physical_function or device.address
        return (
            *(device for device in (self.by_address.get(head),) if device is not None),
            *self.children.get(head, ()),
        )

    def serial_number(self, device: PciDevice) -> str | None:
        """Return the serial number of the device's card. A VF without its own has that of its
        PF.
        """
        parent = self.parent(device)
        return device.serial_number or (parent.serial_number if parent is not None else None)

    def parent_ifname(self, device: PciDevice) -> str | None:
        """Return the PF's network interface, for a VF that has an interface itself."""
        parent = self.parent(device)
        return parent.netdev if parent is not None and device.netdev is not None else None

    def number(self, device: PciDevice) -> int | None:
        """Return the number of a VF among those of its PF."""
        parent = self.parent(device)
        return (
            parent.virtual_functions.index(device.address)
            if parent is not None and device.address in parent.virtual_functions
            else None
        )


VIRTUAL = frozenset({"type-VF", "vdpa"})


@dataclass(frozen=True, slots=True)
class Matched:
    """A device that guests may have, with the first object that offers it."""

    device: PciDevice
    spec: DeviceSpec

    @property
    def resource_class(self) -> str:
        """The class that counts it."""
        return self.spec.resource_class or class_of_ids(
            self.device.vendor_id, self.device.product_id
        )

    @property
    def one_time_use(self) -> bool:
        """Whether the device has to be cleaned after each guest before another guest may have
        it.
        """
        return bool(self.spec.one_time_use) and self.device.type not in VIRTUAL

    @property
    def traits(self) -> frozenset[str]:
        """The traits that its provider has because of it, without those that every device's
        provider has.
        """
        more = {
            os_traits.HW_PCI_LIVE_MIGRATABLE: self.spec.live_migratable,
            os_traits.HW_PCI_ONE_TIME_USE: self.one_time_use,
        }
        return self.spec.traits | {name for name, said in more.items() if said}


def match_devices(present: PresentDevices, specs: Sequence[DeviceSpec]) -> tuple[Matched, ...]:
    """Return every device that some object offers, by address. The first object that matches
    counts.
    """
    found = (
        (device, next((spec for spec in specs if matches(device, spec, present)), None))
        for device in present
    )
    return tuple(Matched(device, spec) for device, spec in found if spec is not None)


def matches(device: PciDevice, spec: DeviceSpec, present: PresentDevices) -> bool:
    """Return whether the object offers the device."""
    return (
        spec.vendor_id in (None, device.vendor_id)
        and spec.product_id in (None, device.product_id)
        and _is_there(device, spec, present)
        and (not spec.remote_managed or _can_be_remote_managed(device, present))
    )


def meant(spec: DeviceSpec, present: PresentDevices) -> PciAddress | None:
    """Return the single address that the object means; None if it means several, or a network
    interface that the host does not have.
    """
    if spec.devname is None:
        return spec.address.single
    named = present.by_netdev.get(spec.devname)
    return named.address if named is not None else None


def _is_there(device: PciDevice, spec: DeviceSpec, present: PresentDevices) -> bool:
    single = meant(spec, present)
    if single is not None:
        # A PF's own address stands for its VFs too, so that an object can select the VFs of one
        # card by address and ids.
        head = present.by_address.get(single)
        through = (
            head is not None and head.is_physical_function and device.physical_function == single
        )
        return through or device.address == single
    return spec.devname is None and spec.address.matches(device.address)


def _can_be_remote_managed(device: PciDevice, present: PresentDevices) -> bool:
    """Return whether the device is a VF with a serial number, by which the service that programs
    the card finds the card.
    """
    return device.type in VIRTUAL and bool(present.serial_number(device))
