"""Devices of a host as plain facts: PCI functions and their SR-IOV relations."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Self, get_args

from agent.model.guest import PciPolicy
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

    ``state`` is that of the device itself; that a PF is out of reach while one of its VFs is held,
    and the reverse, follows from the ``parent`` addresses and is not kept. ``holder``: the id of
    the claim that has it, None exactly if it is available; ``request``: the id of what the claim
    asked. ``tags``: what the operator says of it, and by which requests may tell it from others;
    two devices of one pool have equal ones.

    ``serves``: ``guests`` if the operator offers it. The others are there because a function of the
    same card is offered: ``host`` if the host itself uses it, so that its PF cannot be had, else
    ``nobody``. ``present``: whether the host still shows it and the operator still offers it; one
    that is gone while held is dropped when it becomes free.

    ``one_time_use``: whether it has to be cleaned after each guest. ``used``: it has to be cleaned
    now, because a guest had or has it; all of its card is reserved. ``reserved``: of the card with
    this address, how many devices Placement was last seen to have reserved, by whomever;
    ``reserved_at``: the generation that the card's provider had then. ``reservation_due``:
    Placement does not have that yet, so that nobody can have lowered it. ``version``: see
    :mod:`agent.model.node_records`.
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
        """Whether something of its card is kept from the scheduler, which must not be forgotten
        with the card.
        """
        return self.used or self.reserved > 0

    def held_by(self, claim: str, state: DeviceState, request: str | None = None) -> Self:
        """The device as the claim has it. From now on one for one time is used, whatever becomes of
        the claim.
        """
        taken = replace(self, state=state, holder=claim, request=request)
        return taken.marked_used() if self.one_time_use else taken

    def marked_used(self) -> Self:
        """The device as one that has to be cleaned, which Placement is to know."""
        return replace(self, used=True, reservation_due=True)


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """``count`` devices, each with everything that ``spec`` or one of the ``alternatives`` names:
    vendor_id, product_id, type, address, or tags of the operator. ``policy``: how near to the
    guest's cells, None as the guest says. ``alias``: by which a flavor asked. ``resource_class``:
    what counts them in Placement, if it does. ``providers``: those that the scheduler took them
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
    """``missing`` devices that the cells of a guest must have if it is ``required``, and else
    should have because others are far.

    ``near``: how many each cell has to offer, at most.
    """

    missing: int
    near: Mapping[int, int]
    required: bool


_ADDRESS = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")


@dataclass(frozen=True, slots=True, order=True)
class PciAddress:
    """``domain:bus:slot.function``; the domain has up to 32 bits (Intel VMD, Hyper-V)."""

    domain: int
    bus: int
    slot: int
    function: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``DDDD:BB:SS.F`` with 4 to 8 domain digits.

        :raises ValueError: ``text`` is no PCI address.
        """
        match = _ADDRESS.fullmatch(text)
        if match is None or int(match[3], 16) > 0x1F:
            raise ValueError(f"{text!r} is not a PCI address of the form DDDD:BB:SS.F")
        return cls(*(int(part, 16) for part in match.groups()))

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.slot:02x}.{self.function:x}"


@dataclass(frozen=True, slots=True)
class PciDevice:
    """One PCI function as the host shows it; ``None`` is what the host or the driver cannot tell.

    ``vendor_id``, ``product_id``: four lower-case hex digits. ``class_code``: 24 bits.
    ``numa_node``: the cell. ``physical_function``: the PF of a VF. ``virtual_functions``: the VFs
    of a PF that exist now, in the order of their numbers; ``max_virtual_functions``: how many it
    could have (0: none); ``virtual_function_product_id``: what they are. ``netdev``: its network
    interface on the host, ``mac_address`` and ``network_capabilities`` are that one's.
    ``serial_number``: of the card, from the function's own vital product data. ``has_vdpa``: a vDPA
    device is made of it. ``host_use``: what of the host itself uses a VF, in words.
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
