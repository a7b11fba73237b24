"""PCI devices of fake hosts: physical functions with their virtual functions."""

from agent.model.devices import PciDevice
from agent.model.names import number_of
from agent.model.pci_address import PciAddress

ETHERNET = 0x020000
ETHERNET_VENDOR, ETHERNET_PF, ETHERNET_VF = "8086", "1528", "1515"


def function_after(address: PciAddress, count: int) -> PciAddress:
    """The ``count``-th function after ``address`` on its bus; functions beyond the seventh go on in the next slot.

    :raises ValueError: the bus ends before.
    """
    slot, function = divmod(address.slot * 8 + address.function + count, 8)
    if slot > 0x1F:
        raise ValueError(f"bus {address.bus:02x} has no room for {number_of(count, 'function')} after {address}")
    return PciAddress(address.domain, address.bus, slot, function)


def network_card(text: str, numa_node: int, enabled: int, maximum: int) -> tuple[PciDevice, ...]:
    """A network card at the address ``text`` with ``enabled`` of ``maximum`` virtual functions right behind it."""
    address = PciAddress.parse(text)
    functions = tuple(function_after(address, index + 1) for index in range(enabled))
    card = PciDevice(
        address,
        ETHERNET_VENDOR,
        ETHERNET_PF,
        class_code=ETHERNET,
        numa_node=numa_node,
        virtual_functions=functions,
        max_virtual_functions=maximum,
    )
    virtual = (
        PciDevice(function, ETHERNET_VENDOR, ETHERNET_VF, class_code=ETHERNET, numa_node=numa_node, physical_function=address)
        for function in functions
    )
    return card, *virtual
