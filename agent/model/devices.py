"""Devices of a host as plain facts: PCI functions and their SR-IOV relations."""

from dataclasses import dataclass

from agent.model.pci_address import PciAddress


@dataclass(frozen=True, slots=True)
class PciDevice:
    """One PCI function as the host shows it.

    ``vendor_id``, ``product_id``: four lower-case hex digits. ``class_code``: 24 bits, ``None`` if not known.
    ``numa_node``: the cell, ``None`` if the host does not say. ``physical_function``: the PF of a VF.
    ``virtual_functions``: the VFs of a PF that exist now; ``max_virtual_functions``: how many it could have (0: none).
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

    @property
    def is_physical_function(self) -> bool:
        """Whether the device can have virtual functions, even if none is enabled."""
        return self.max_virtual_functions > 0

    @property
    def is_virtual_function(self) -> bool:
        """Whether the device is a virtual function of another."""
        return self.physical_function is not None
