"""What is asked of PCI devices: so many, of one of some kinds, as near as a policy wants them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.model.guest import PciPolicy
from agent.model.names import ProviderUuid


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """``count`` devices, each with everything that ``spec`` or one of the ``alternatives`` names: vendor_id, product_id, type,
    address, or tags of the operator. ``policy``: how near to the guest's cells, None as the guest says. ``alias``: by which a
    flavor asked. ``resource_class``: what counts them in Placement, if it does. ``providers``: those that the scheduler took them
    from, one entry a device, the same several times if it gives several; empty if it did not say.
    """

    id: str
    count: int
    spec: Mapping[str, str] = field(default_factory=dict)
    alternatives: tuple[Mapping[str, str], ...] = ()
    policy: PciPolicy | None = None
    alias: str | None = None
    resource_class: str | None = None
    providers: tuple[ProviderUuid, ...] = ()

    @property
    def specs(self) -> tuple[Mapping[str, str], ...]:
        """All kinds that will do."""
        return (self.spec, *self.alternatives)


@dataclass(frozen=True, slots=True)
class DeviceDemand:
    """``missing`` devices that the cells of a guest must have if it is ``required``, and else should have because others are far.

    ``near``: how many each cell has to offer, at most.
    """

    missing: int
    near: Mapping[int, int]
    required: bool
