"""Domain: a guest as the hypervisor shows it, independent of the records."""

from dataclasses import dataclass
from typing import Literal

from agent.model.devices import PciAddress
from agent.model.flavor import Flavor
from agent.model.guest import PlacedCell
from agent.model.names import ConsumerUuid

DomainState = Literal["running", "paused", "stopped"]


@dataclass(frozen=True, slots=True)
class Origin:
    """The flavor and owner of a guest, as its creator wrote them beside the guest."""

    flavor: Flavor
    project_id: str
    user_id: str
    volume_backed: bool = False


@dataclass(frozen=True, slots=True)
class Domain:
    """One guest. Its mediated devices name the guest as their owner."""

    uuid: ConsumerUuid
    name: str
    memory_mib: int
    """MiB."""
    vcpus: int | None = None
    """None if not known."""
    state: DomainState = "running"
    cells: tuple[PlacedCell, ...] = ()
    """The host cells that the guest's cells are bound to, with the host CPUs that it is pinned to;
    empty for a guest that floats.
    """
    devices: tuple[PciAddress, ...] = ()
    """The host devices that the guest has."""
    origin: Origin | None = None
    """None if it was not written down."""

    @property
    def pinned(self) -> bool:
        """Whether some of its CPUs have host CPUs of their own."""
        return any(cell.pins for cell in self.cells)
