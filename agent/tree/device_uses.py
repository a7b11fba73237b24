"""Which consumer has which of a node's devices, as the tree takes it from the records."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.model.devices import PciAddress
from agent.model.names import ConsumerUuid


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """A device that a consumer has."""

    address: PciAddress
    card: PciAddress
    """The address of its PF, or its own."""
    owner: ConsumerUuid
    """The consumer, usually an instance."""
    numa_node: int | None = None
    """The cell of the device when it was assigned."""
    of_network: bool = False
    """The device was assigned for a physical network. Networking counts it, unless its card is
    counted here by now.
    """


@dataclass(frozen=True, slots=True)
class ReservedOfCard:
    """What Placement has as reserved of a card."""

    reserved: int
    """Devices that are reserved."""
    total: int
    """Devices in all."""
    generation: int
    """The generation of the provider when this was read."""


@dataclass(frozen=True, slots=True)
class Withheld:
    """How many of a card's devices are to be reserved."""

    amount: int | None = 0
    """None for all."""
    due: bool = False
    """Placement does not have it yet; once it has, Placement's amount counts."""


@dataclass(frozen=True, slots=True)
class DeviceUses:
    """All devices of a node that are in use."""

    uses: tuple[DeviceUse, ...] = ()
    settled: frozenset[ConsumerUuid] = frozenset()
    """Guests that are on the node and not moving, so that they themselves hold what they have
    here.
    """
    busy: frozenset[ConsumerUuid] = frozenset()
    """Guests with an open task, so that more may be allocated to them than they have yet."""
    withheld: Mapping[PciAddress, Withheld] = field(default_factory=dict)
    """By card: what is to be reserved, so that no consumer gets it."""
    known: frozenset[ConsumerUuid] = frozenset()
    """The consumers that the node's records mention."""
