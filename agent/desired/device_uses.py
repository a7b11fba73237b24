"""Who has which of a node's devices, as the tree needs to know it of whoever keeps the records."""

from dataclasses import dataclass

from agent.model.names import ConsumerUuid
from agent.model.pci_address import PciAddress


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """A device that ``owner`` has. ``card``: the address of its PF, or its own; ``numa_node``: where it was when it was given."""

    address: PciAddress
    card: PciAddress
    owner: ConsumerUuid
    numa_node: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceUses:
    """All that are in use of those that Placement may count.

    ``settled``: the guests that are on the node and not on the move, so that all that they have here they hold themselves.
    """

    uses: tuple[DeviceUse, ...] = ()
    settled: frozenset[ConsumerUuid] = frozenset()
