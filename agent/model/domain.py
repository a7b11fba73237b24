"""A domain: a guest as the hypervisor shows it, whatever the records say."""

from dataclasses import dataclass
from typing import Literal, get_args

from agent.model.devices import PciAddress
from agent.model.flavor import Flavor
from agent.model.guest import PlacedCell
from agent.model.names import ConsumerUuid

DomainState = Literal["running", "paused", "stopped"]
DOMAIN_STATES: frozenset[DomainState] = frozenset(get_args(DomainState))


@dataclass(frozen=True, slots=True)
class Origin:
    """What a guest was made from and for whom, as its maker wrote it beside the guest."""

    flavor: Flavor
    project_id: str
    user_id: str
    volume_backed: bool = False


@dataclass(frozen=True, slots=True)
class Domain:
    """One guest. ``memory_mib`` in MiB; ``vcpus`` None if not known.

    ``cells``: the host cells that its own cells are bound to, with the host CPUs that it is pinned
    to; none for one that floats. ``devices``: the host devices that it has. ``origin``: None if
    nobody wrote it down. Its mediated devices name it as their owner.
    """

    uuid: ConsumerUuid
    name: str
    memory_mib: int
    vcpus: int | None = None
    state: DomainState = "running"
    cells: tuple[PlacedCell, ...] = ()
    devices: tuple[PciAddress, ...] = ()
    origin: Origin | None = None

    @property
    def pinned(self) -> bool:
        """Whether some of its CPUs have host CPUs of their own."""
        return any(cell.pins for cell in self.cells)
