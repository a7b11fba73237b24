"""What guests get of a host beside CPUs, memory and disk: PCI functions and their SR-IOV relations,
device records and requests; mediated devices and their parents, contexts of encrypted memory, and
assignable units such as persistent-memory namespaces.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Self

from agent.model.instance import PciPolicy
from agent.model.names import ConsumerUuid, ProviderUuid

DeviceType = Literal["type-PCI", "type-PF", "type-VF", "vdpa"]
DeviceState = Literal["available", "claimed", "allocated"]
Serves = Literal["guests", "nobody", "host"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRecord:
    """One device of one node, identified by its address.

    ``state`` is that of the device itself. A PF cannot be used while one of its VFs is held, and
    the reverse; this follows from the ``parent`` addresses and is not stored.
    """

    node: ProviderUuid
    address: str
    vendor_id: str
    product_id: str
    type: DeviceType = "type-PCI"
    parent: str | None = None
    """The address of the PF of a VF."""
    numa_node: int | None = None
    """The cell; None if unknown."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """The operator's tags, by which requests may select the device; two devices of one pool have
    equal tags.
    """
    serves: Serves = "guests"
    """``guests`` if the operator offers the device. Other devices are recorded because a function
    of the same card is offered: ``host`` if the host itself uses the device, so that its PF cannot
    be used, else ``nobody``.
    """
    state: DeviceState = "available"
    holder: str | None = None
    """The id of the claim that has the device, None exactly if it is available."""
    request: str | None = None
    """The id of the device request that it serves."""
    present: bool = True
    """Whether the host still shows the device and the operator still offers it; a device that is
    gone while held is dropped when it becomes free.
    """
    one_time_use: bool = False
    """Whether the device has to be cleaned after each guest."""
    used: bool = False
    """Whether the device has to be cleaned now, because a guest had or has it; all of its card is
    reserved.
    """
    reserved: int = 0
    """How many devices of the card with this address Placement was last seen to have reserved, set
    by any writer.
    """
    reserved_at: int = 0
    """The generation that the card's provider had then."""
    reservation_due: bool = False
    """Whether Placement does not have that reservation yet, so that nobody can have lowered it."""
    version: int = 0
    """See :mod:`agent.model.node_records`."""

    @property
    def card(self) -> str:
        """The address of its PF, or its own."""
        return self.parent or self.address

    @property
    def withheld(self) -> bool:
        """Whether a part of its card is withheld from the scheduler, which must not be forgotten
        with the card.
        """
        return self.used or self.reserved > 0

    def is_like(self, other: "DeviceRecord | PciDevice") -> bool:
        """Whether both have the same vendor and product."""
        return (self.vendor_id, self.product_id) == (other.vendor_id, other.product_id)

    def held_by(self, claim: str, state: DeviceState, request: str | None = None) -> Self:
        """Return the device as the claim holds it. A one-time-use device is used from now on,
        whatever becomes of the claim.
        """
        taken = replace(self, state=state, holder=claim, request=request)
        return taken.marked_used() if self.one_time_use else taken

    def marked_used(self) -> Self:
        """Return the device marked as one that has to be cleaned, which has to be published."""
        return replace(self, used=True, reservation_due=True)


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """A request for ``count`` devices."""

    id: str
    count: int
    spec: Mapping[str, str] = field(default_factory=dict)
    """What each device has to match: vendor_id, product_id, type, address, or tags of the
    operator.
    """
    alternatives: tuple[Mapping[str, str], ...] = ()
    """Other specs of which a device may match one instead."""
    policy: PciPolicy | None = None
    """How near to the guest's cells the devices have to be; None: as the guest's own policy
    says.
    """
    alias: str | None = None
    """The alias by which a flavor requested them."""
    resource_class: str | None = None
    """The class that counts them in Placement, if any does."""
    providers: tuple[ProviderUuid, ...] = ()
    """The providers that the scheduler allocated, one entry for each device, so that a provider may
    appear several times; empty if there is no allocation.
    """

    @property
    def specs(self) -> tuple[Mapping[str, str], ...]:
        """All specs of which a device has to match one."""
        return (self.spec, *self.alternatives)


@dataclass(frozen=True, slots=True)
class DeviceDemand:
    """The devices that a guest still needs, as a demand on its set of cells. Each device counts
    once, or with a weight.
    """

    missing: int
    """How much the cells have to offer."""
    near: Mapping[int, int]
    """How much each cell offers at most."""
    required: bool
    """Whether the cells must have them; else they should, because other cells are far."""
    heaviest: int = 1
    """The most that one device counts."""

    def lacking(self, there: int) -> int:
        """Return how many devices are lacking at least if the cells have ``there``."""
        return -((there - self.missing) // self.heaviest)


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


# The kernel's names of ports: those that leave the card (a cable's, or a part of a split one), and
# those that stand for a function or subfunction on a card that switches by itself.
_OUTER = re.compile(r"p\d+(s\d+)?")
_REPRESENTATIVE = re.compile(r"(c\d+)?pf\d+.*")


@dataclass(frozen=True, slots=True)
class Port:
    """A network interface whose device is a PCI function, as the kernel describes it."""

    interface: str
    name: str = ""
    """``phys_port_name``; empty for a port without one."""
    number: int = 0
    """``dev_port``: the port's number among those of the function."""


def own_ports(ports: Iterable[Port]) -> tuple[str, ...]:
    """Return the interfaces that are the function's own, the first port first. On a card that
    switches by itself the PF also has an interface for each of its functions; their interfaces may
    have any name.
    """
    ports = tuple(ports)
    # Older drivers name the others by a number alone.
    own = [port for port in ports if _OUTER.fullmatch(port.name)] or [
        port for port in ports if not _REPRESENTATIVE.fullmatch(port.name)
    ]
    return tuple(
        port.interface for port in sorted(own, key=lambda port: (port.number, port.interface))
    )


@dataclass(frozen=True, slots=True)
class PciDevice:
    """One PCI function as the host shows it; ``None`` where the host or the driver does not
    report.
    """

    address: PciAddress
    vendor_id: str
    """Four lower-case hex digits."""
    product_id: str
    """Four lower-case hex digits."""
    class_code: int | None = None
    """24 bits."""
    numa_node: int | None = None
    """The cell."""
    physical_function: PciAddress | None = None
    """The PF of a VF."""
    virtual_functions: tuple[PciAddress, ...] = ()
    """The VFs of a PF that exist now, in the order of their numbers."""
    max_virtual_functions: int = 0
    """How many VFs a PF could have (0: none)."""
    kernel_driver: str | None = None
    virtual_function_product_id: str | None = None
    """The product id of the VFs of a PF."""
    netdev: str | None = None
    """The network interface of the function on the host; of several ports, that of the first."""
    other_netdevs: tuple[str, ...] = ()
    """The network interfaces of its further ports."""
    mac_address: str | None = None
    """Of the network interface."""
    network_capabilities: tuple[str, ...] = ()
    """Of the network interface."""
    serial_number: str | None = None
    """Of the card, from the function's own vital product data."""
    has_vdpa: bool = False
    """Whether a vDPA device is made of the function."""
    label: str | None = None
    host_use: str | None = None
    """What on the host itself uses a VF, in words."""

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
        """The kind of function. Only a virtual one counts as vDPA."""
        if self.is_physical_function:
            return "type-PF"
        if self.is_virtual_function:
            return "vdpa" if self.has_vdpa else "type-VF"
        return "type-PCI"


PCI = "pci"

_NO_WORD = re.compile(r"[^A-Za-z0-9]")


def parent_name(text: str) -> str:
    """Return the usual spelling of a parent: a PCI address in lower case, any other name unchanged.

    :raises ValueError: it has a colon, as only PCI addresses have, and is no PCI address.
    """
    return str(PciAddress.parse(text)) if ":" in text else text


@dataclass(frozen=True, slots=True)
class Mdev:
    """An existing mediated device."""

    uuid: str
    type: str
    owner: ConsumerUuid | None = None
    """The guest that has it; None if no guest has it or that is unknown."""


@dataclass(frozen=True, slots=True)
class MdevParent:
    """A device on which mediated devices can be created."""

    name: str
    """Its PCI address, or the name of a virtual device, such as ``mtty``."""
    bus: str = PCI
    """The kernel's bus of the device, ``pci`` or another."""
    available: Mapping[str, int] = field(default_factory=dict)
    """Each supported type to the number that could be created in addition now."""
    mdevs: tuple[Mdev, ...] = ()
    numa_node: int | None = None
    """The cell; None if unknown."""

    def made(self, mdev_type: str) -> int:
        """Return how many devices of a type exist."""
        return sum(mdev.type == mdev_type for mdev in self.mdevs)

    def total(self, mdev_type: str) -> int:
        """Return how many devices of a type exist or could be created."""
        return self.made(mdev_type) + self.available.get(mdev_type, 0)

    def provider_name(self, root: str) -> str:
        """Return the name of its provider on the node called ``root``, with the parent's name in
        the spelling of libvirt and nova.
        """
        return f"{root}_{_NO_WORD.sub('_', f'{self.bus}_{self.name}')}"


@dataclass(frozen=True, slots=True)
class MdevSource:
    """A parent as Placement counts it: ``total`` devices of ``type``, in the inventory of
    ``resource_class`` on ``provider``.
    """

    provider: ProviderUuid
    resource_class: str
    parent: str
    type: str
    total: int
    most: int
    """How many devices of ``type`` the parent can have, whatever is dealt out to it."""
    numa_node: int | None = None
    guests: Mapping[ConsumerUuid, int] = field(default_factory=dict)
    """The guests that have devices of it, with their number."""


@dataclass(frozen=True, slots=True)
class MdevShare:
    """The mediated devices of a claim: ``count`` of ``type`` on ``parent``."""

    provider: ProviderUuid
    resource_class: str
    count: int
    parent: str | None = None
    """None where ``provider`` counts several and the allocation does not name one."""
    type: str | None = None
    """None where ``provider`` counts several and the allocation does not name one."""


Technique = Literal["sev", "sev_es", "sev_snp", "tdx"]


@dataclass(frozen=True, slots=True)
class EncryptionFacts:
    """The techniques that are switched on."""

    contexts: Mapping[Technique, int | None] = field(default_factory=dict)
    """Technique to the number of guests that can use it; None if the host does not report it.
    SEV-ES and SEV-SNP share their contexts: each has the full number.
    """


# The kernel parameter that switches a technique on.
SWITCHES: Mapping[Technique, str] = {
    "sev": "module/kvm_amd/parameters/sev",
    "sev_es": "module/kvm_amd/parameters/sev_es",
    "sev_snp": "module/kvm_amd/parameters/sev_snp",
    "tdx": "module/kvm_intel/parameters/tdx",
}
# In the unified hierarchy of control groups, and in the older one with a folder for each
# controller.
CAPACITIES = ("fs/cgroup/misc.capacity", "fs/cgroup/misc/misc.capacity")

# The name of a technique's contexts in the capacities.
_CONTEXTS: Mapping[Technique, str] = {
    "sev": "sev",
    "sev_es": "sev_es",
    "sev_snp": "sev_es",
    "tdx": "tdx",
}
_LINE = re.compile(r"(\w+) (\d{1,18})")


def is_on(text: str | None, what: str) -> bool:
    """Return whether the text of a switch means on; a kernel without the switch (None) has the
    technique off. ``what`` names the switch in errors.

    :raises ValueError: the text is not that of a switch.
    """
    word = None if text is None else text.strip()
    if word not in (None, "Y", "1", "N", "0"):
        raise ValueError(f"{what}: {word[:80]!r} is neither Y nor N")
    return word in ("Y", "1")


def parse_capacities(text: str, what: str) -> dict[str, int]:
    """Return name to amount. ``what`` names the text in errors.

    :raises ValueError: the text is no list of names and numbers.
    """
    lines = [_LINE.fullmatch(line.strip()) for line in text.splitlines()]
    if None in lines:
        raise ValueError(f"{what}: {text[:80]!r} is not a list of names and numbers")
    return {match[1]: int(match[2]) for match in lines if match}


def contexts(technique: Technique, capacities: Mapping[str, int] | None) -> int | None:
    """Return how many guests can use the technique; None without the controller ``misc``, because
    then the kernel does not report it.

    With the controller, a technique without a line has 0: the firmware gave all contexts to another
    one.
    """
    return None if capacities is None else capacities.get(_CONTEXTS[technique], 0)


PMEM_PREFIX = "CUSTOM_PMEM_NAMESPACE_"
"""Begins the resource classes of persistent memory, which is always assigned in single units."""


@dataclass(frozen=True, slots=True)
class AssignableUnit:
    """One unit as the driver reports it. Placement only counts units of ``resource_class``."""

    resource_class: str
    identifier: str
    """Identifies the unit on its provider."""
    provider: str | None = None
    """The suffix after the node's name in the name of the provider that counts the unit; None for
    the root.
    """
    metadata: Mapping[str, str] = field(default_factory=dict)

    def provider_name(self, node: str) -> str:
        """Return the name of the provider that counts the unit on the node called ``node``."""
        return node + (self.provider or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRecord:
    """One unit of one node. Placement only counts units of ``resource_class`` on ``provider``; the
    record says which unit a claim has.
    """

    node: ProviderUuid
    provider: ProviderUuid
    resource_class: str
    identifier: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    holder: str | None = None
    """The id of the claim that has it, or None."""
    present: bool = True
    """Whether the host still has it."""
    version: int = 0
    """See :mod:`agent.model.node_records`."""
