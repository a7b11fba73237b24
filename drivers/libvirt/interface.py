"""The network interfaces of PCI functions, from the node devices below them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from drivers.libvirt.node_devices import NodeDevice
from drivers.libvirt.xml import text_of

# How the interface of a card is called that stands for one of its functions, where the card switches by itself.
_REPRESENTATIVE = re.compile(r"(c\d+)?pf\d+(vf|sf)\d+$")
# The kernel's words for an interface that is off; one that is merely without a link is called down as well.
_OFF = frozenset({"", "down", "notpresent"})


@dataclass(frozen=True, slots=True)
class Interface:
    """``features``: what it offloads, in the kernel's words. ``up``: whether the host has it switched on, as far as libvirt tells."""

    name: str
    mac_address: str | None
    features: tuple[str, ...]
    up: bool


def own_interface(devices: Sequence[NodeDevice]) -> Interface | None:
    """The interface that is the function's own among those below it; None if it has none, as while a guest has it."""
    found = sorted((_interface(one) for one in devices), key=lambda one: one.name)
    named = [one for one in found if one.name]
    if len(named) > 1:
        named = [one for one in named if _REPRESENTATIVE.search(one.name) is None]
    return next(iter(named), None)


def _interface(device: NodeDevice) -> Interface:
    link = device.capability.find("link")
    return Interface(
        name=text_of(device.capability, "interface"),
        mac_address=text_of(device.capability, "address") or None,
        features=tuple(sorted({one.get("name", "") for one in device.capability.findall("feature")} - {""})),
        up=link is not None and link.get("state", "") not in _OFF,
    )
