"""The devices of a host as they stand to each other: who is whose parent, and what one knows only by the other."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Self

from agent.model.devices import PciDevice
from agent.model.pci_address import PciAddress


@dataclass(frozen=True, slots=True)
class PresentDevices:
    """All devices that a host shows, by address and by network interface."""

    by_address: Mapping[PciAddress, PciDevice]
    by_netdev: Mapping[str, PciDevice]
    children: Mapping[PciAddress, tuple[PciDevice, ...]]

    @classmethod
    def of(cls, devices: Iterable[PciDevice]) -> Self:
        """The devices in order of their addresses, related to each other."""
        ordered = sorted(devices, key=attrgetter("address"))
        children: dict[PciAddress, tuple[PciDevice, ...]] = {}
        for one in ordered:
            if one.physical_function is not None:
                children[one.physical_function] = (*children.get(one.physical_function, ()), one)
        return cls({one.address: one for one in ordered}, {one.netdev: one for one in ordered if one.netdev is not None}, children)

    def __iter__(self) -> Iterator[PciDevice]:
        return iter(self.by_address.values())

    def parent(self, device: PciDevice) -> PciDevice | None:
        """The PF of a VF, if the host shows it."""
        return self.by_address.get(device.physical_function) if device.physical_function is not None else None

    def family(self, device: PciDevice) -> tuple[PciDevice, ...]:
        """The device with its PF and all VFs of that."""
        head = device.physical_function or device.address
        return (*(one for one in (self.by_address.get(head),) if one is not None), *self.children.get(head, ()))

    def serial_number(self, device: PciDevice) -> str | None:
        """That of its card, which a VF has from its PF if it has none itself."""
        parent = self.parent(device)
        return device.serial_number or (parent.serial_number if parent is not None else None)

    def parent_ifname(self, device: PciDevice) -> str | None:
        """The PF's network interface, of a VF that has one itself."""
        parent = self.parent(device)
        return parent.netdev if parent is not None and device.netdev is not None else None

    def number(self, device: PciDevice) -> int | None:
        """The number of a VF among those of its PF."""
        parent = self.parent(device)
        return parent.virtual_functions.index(device.address) if parent is not None and device.address in parent.virtual_functions else None
