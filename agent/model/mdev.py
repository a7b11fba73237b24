"""Mediated devices: the parents that can be cut into them, and those that exist."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.model.devices import PciAddress
from agent.model.names import ConsumerUuid, ProviderUuid

PCI = "pci"

_NO_WORD = re.compile(r"[^A-Za-z0-9]")


def parent_name(text: str) -> str:
    """The usual spelling of a parent: a PCI address in lower case, anything else as it is.

    :raises ValueError: it has a colon, as only PCI addresses do, and is none.
    """
    return str(PciAddress.parse(text)) if ":" in text else text


@dataclass(frozen=True, slots=True)
class Mdev:
    """One that exists. ``owner``: the guest that has it, None if nobody does or nobody can tell."""

    uuid: str
    type: str
    owner: ConsumerUuid | None = None


@dataclass(frozen=True, slots=True)
class MdevParent:
    """A device that can be cut into mediated ones: ``name`` is its PCI address, or that of a
    virtual one, such as ``mtty``.

    ``bus``: what the kernel has it on, ``pci`` or another. ``available``: of each type that it
    supports how many more could be made now. ``numa_node``: the cell, None if nobody can tell.
    """

    name: str
    bus: str = PCI
    available: Mapping[str, int] = field(default_factory=dict)
    mdevs: tuple[Mdev, ...] = ()
    numa_node: int | None = None

    def total(self, mdev_type: str) -> int:
        """How many of a type there are and could be."""
        return sum(one.type == mdev_type for one in self.mdevs) + self.available.get(mdev_type, 0)

    def provider_name(self, root: str) -> str:
        """The name of its provider on the node called ``root``; it has the parent's name as
        libvirt, and so nova, writes it.
        """
        return f"{root}_{_NO_WORD.sub('_', f'{self.bus}_{self.name}')}"


@dataclass(frozen=True, slots=True)
class MdevSource:
    """A parent as Placement counts it: ``total`` devices of ``type``, by ``resource_class`` of
    ``provider``.
    """

    provider: ProviderUuid
    resource_class: str
    parent: str
    type: str
    total: int
    numa_node: int | None = None


@dataclass(frozen=True, slots=True)
class MdevShare:
    """What a claim has of mediated devices: ``count`` of ``type`` on ``parent``. These are None
    where ``provider`` counts several and nobody said which.
    """

    provider: ProviderUuid
    resource_class: str
    count: int
    parent: str | None = None
    type: str | None = None
