"""What guests get of a host beside CPUs, memory, disk and PCI devices: mediated devices and their
parents, contexts of encrypted memory, and assignable units such as persistent-memory namespaces.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from agent.model.devices import PciAddress
from agent.model.names import ConsumerUuid, ProviderUuid

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


def is_on(text: str | None) -> bool:
    """Return whether the text of a switch means on; a kernel without the switch (None) has the
    technique off.

    :raises ValueError: the text is not that of a switch.
    """
    word = None if text is None else text.strip()
    if word not in (None, "Y", "1", "N", "0"):
        raise ValueError(f"{word[:80]!r} is neither Y nor N")
    return word in ("Y", "1")


def parse_capacities(text: str) -> dict[str, int]:
    """Return name to amount.

    :raises ValueError: the text is no list of names and numbers.
    """
    lines = [_LINE.fullmatch(line.strip()) for line in text.splitlines()]
    if None in lines:
        raise ValueError(f"{text[:80]!r} is not a list of names and numbers")
    return {match[1]: int(match[2]) for match in lines if match}


def contexts(technique: Technique, capacities: Mapping[str, int] | None) -> int | None:
    """Return how many guests can use the technique; None without the controller ``misc``, because
    then the kernel does not report it.

    With the controller, a technique without a line has 0: the firmware gave all contexts to another
    one.
    """
    return None if capacities is None else capacities.get(_CONTEXTS[technique], 0)


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
