"""Mediated devices: the parents on which they can be created, the existing ones, and claimed
shares.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

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

    def total(self, mdev_type: str) -> int:
        """Return how many devices of a type exist or could be created."""
        return sum(mdev.type == mdev_type for mdev in self.mdevs) + self.available.get(mdev_type, 0)

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
    numa_node: int | None = None


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
