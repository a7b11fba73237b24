"""Who has which of a node's devices, as the tree needs to know it of whoever keeps the records."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.model.devices import PciAddress
from agent.model.names import ConsumerUuid


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """A device that ``owner`` has. ``card``: the address of its PF, or its own; ``numa_node``:
    where it was when it was given.

    ``of_network``: it was given for a physical network. Networking counts it, unless its card is
    counted here by now.
    """

    address: PciAddress
    card: PciAddress
    owner: ConsumerUuid
    numa_node: int | None = None
    of_network: bool = False


@dataclass(frozen=True, slots=True)
class ReservedOfCard:
    """How many of a card's devices are reserved in Placement, of how many, and the generation of
    its provider then.
    """

    reserved: int
    total: int
    generation: int


@dataclass(frozen=True, slots=True)
class Withheld:
    """How many of a card's devices are to be reserved, None for all. ``due``: Placement does not
    have that yet; else it may have another word.
    """

    amount: int | None = 0
    due: bool = False


@dataclass(frozen=True, slots=True)
class DeviceUses:
    """All that are in use.

    ``settled``: the guests that are on the node and not on the move, so that all that they have
    here they hold themselves. ``busy``: those of whom a task is open, so that more may be allocated
    to them than they have yet. ``withheld``: by the address of the card, what is to be kept from
    everybody. ``known``: the consumers of whom the node's records say anything.
    """

    uses: tuple[DeviceUse, ...] = ()
    settled: frozenset[ConsumerUuid] = frozenset()
    busy: frozenset[ConsumerUuid] = frozenset()
    withheld: Mapping[PciAddress, Withheld] = field(default_factory=dict)
    known: frozenset[ConsumerUuid] = frozenset()
