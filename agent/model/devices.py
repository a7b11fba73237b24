"""Devices of a host as plain facts: PCI functions and their SR-IOV relations."""

from dataclasses import dataclass

from agent.model.device_record import DeviceType
from agent.model.pci_address import PciAddress


@dataclass(frozen=True, slots=True)
class PciDevice:
    """One PCI function as the host shows it; ``None`` is what the host or the driver cannot tell.

    ``vendor_id``, ``product_id``: four lower-case hex digits. ``class_code``: 24 bits. ``numa_node``: the cell.
    ``physical_function``: the PF of a VF. ``virtual_functions``: the VFs of a PF that exist now, in the order of their
    numbers; ``max_virtual_functions``: how many it could have (0: none); ``virtual_function_product_id``: what they are.
    ``netdev``: its network interface on the host, ``mac_address`` and ``network_capabilities`` are that one's.
    ``serial_number``: of the card, from the function's own vital product data. ``has_vdpa``: a vDPA device is made of it.
    ``host_use``: what of the host itself uses a VF, in words.
    """

    address: PciAddress
    vendor_id: str
    product_id: str
    class_code: int | None = None
    numa_node: int | None = None
    physical_function: PciAddress | None = None
    virtual_functions: tuple[PciAddress, ...] = ()
    max_virtual_functions: int = 0
    kernel_driver: str | None = None
    virtual_function_product_id: str | None = None
    netdev: str | None = None
    mac_address: str | None = None
    network_capabilities: tuple[str, ...] = ()
    serial_number: str | None = None
    has_vdpa: bool = False
    label: str | None = None
    host_use: str | None = None

    @property
    def is_physical_function(self) -> bool:
        """Whether the device can have virtual functions, even if none is enabled."""
        return self.max_virtual_functions > 0

    @property
    def is_virtual_function(self) -> bool:
        """Whether the device is a virtual function of another."""
        return self.physical_function is not None

    @property
    def type(self) -> DeviceType:
        """What kind of function it is. Only a virtual one counts as vDPA."""
        if self.is_physical_function:
            return "type-PF"
        if self.is_virtual_function:
            return "vdpa" if self.has_vdpa else "type-VF"
        return "type-PCI"
