"""A PCI device as the records know it: there or gone, free or held by one claim."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Self, get_args

from agent.model.names import ProviderUuid

DeviceType = Literal["type-PCI", "type-PF", "type-VF", "vdpa"]
DeviceState = Literal["available", "claimed", "allocated"]
Serves = Literal["guests", "nobody", "host"]
DEVICE_TYPES: frozenset[DeviceType] = frozenset(get_args(DeviceType))
DEVICE_STATES: frozenset[DeviceState] = frozenset(get_args(DeviceState))
SERVES: frozenset[Serves] = frozenset(get_args(Serves))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRecord:
    """One device of one node, told apart by its address.

    ``state`` is that of the device itself; that a PF is out of reach while one of its VFs is held, and the reverse,
    follows from the ``parent`` addresses and is not kept. ``holder``: the id of the claim that has it, None exactly if
    it is available; ``request``: the id of what the claim asked. ``tags``: what the operator says of it, and by which
    requests may tell it from others; two devices of one pool have equal ones.

    ``serves``: ``guests`` if the operator offers it. The others are there because a function of the same card is offered:
    ``host`` if the host itself uses it, so that its PF cannot be had, else ``nobody``. ``present``: whether the host
    still shows it and the operator still offers it; one that is gone while held is dropped when it becomes free.

    ``one_time_use``: whether it has to be cleaned after each guest. ``used``: it has to be cleaned now, because a guest had or has
    it; all of its card is reserved. ``reserved``: of the card with this address, how many devices Placement was last seen to have
    reserved, by whomever; ``reserved_at``: the generation that the card's provider had then. ``reservation_due``: Placement does
    not have that yet, so that nobody can have lowered it.
    ``version``: see :mod:`agent.model.record_changes`.
    """

    node: ProviderUuid
    address: str
    vendor_id: str
    product_id: str
    type: DeviceType = "type-PCI"
    parent: str | None = None
    numa_node: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    serves: Serves = "guests"
    state: DeviceState = "available"
    holder: str | None = None
    request: str | None = None
    present: bool = True
    one_time_use: bool = False
    used: bool = False
    reserved: int = 0
    reserved_at: int = 0
    reservation_due: bool = False
    version: int = 0

    @property
    def card(self) -> str:
        """The address of its PF, or its own."""
        return self.parent or self.address

    @property
    def withheld(self) -> bool:
        """Whether something of its card is kept from the scheduler, which must not be forgotten with the card."""
        return self.used or self.reserved > 0

    def held_by(self, claim: str, state: DeviceState, request: str | None = None) -> Self:
        """The device as the claim has it. From now on one for one time is used, whatever becomes of the claim."""
        taken = replace(self, state=state, holder=claim, request=request)
        return taken.marked_used() if self.one_time_use else taken

    def marked_used(self) -> Self:
        """The device as one that has to be cleaned, which Placement is to know."""
        return replace(self, used=True, reservation_due=True)
