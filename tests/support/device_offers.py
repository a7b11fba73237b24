"""What an operator may say of each card of a host, and what that comes to: as the rules have it,
not by the agent's code.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.unit.pci import scene

NAMES = {**scene.NAMES, "V22": "0000:81:02.3", "PX": "0000:83:00.0"}
CARDS: Mapping[str, tuple[str, ...]] = {
    "P0": (),
    "P1": (),
    "PX": (),
    "F2": ("V20", "V21", "V22"),
    "F3": ("V30", "V31", "V32", "V33"),
}
"""The virtual functions that a card may have."""
PRODUCTS = {"P": "1533", "F": "1572", "V": "154c"}
PLAIN, PF, VF = (f"CUSTOM_PCI_8086_{PRODUCTS[kind].upper()}" for kind in "PFV")


@dataclass(frozen=True)
class Meaning:
    """What a device is to Placement. ``network``: it is the networking's to count; ``once``: it is
    for one guest.
    """

    resource_class: str
    traits: frozenset[str] = frozenset()
    network: bool = False
    once: bool = False


@dataclass(frozen=True)
class Offer:
    """``values`` of device_spec about one card, and what each device of it is by them; the others
    are not offered.
    """

    values: tuple[Mapping[str, Any], ...] = ()
    means: Mapping[str, Meaning] = field(default_factory=dict)


NONE = Offer()


def _one(
    name: str, value: Mapping[str, Any], resource_class: str, *traits: str, **more: Any
) -> Offer:
    return Offer(
        ({"address": NAMES[name], **value},),
        {name: Meaning(resource_class, frozenset(traits), **more)},
    )


def _functions(
    card: str, value: Mapping[str, Any], resource_class: str = VF, *traits: str, **more: Any
) -> Offer:
    """All virtual functions of a card."""
    meaning = Meaning(resource_class, frozenset(traits), **more)
    return Offer(
        ({"product_id": "154c", "address": NAMES[card][:-1] + "*", **value},),
        dict.fromkeys(CARDS[card], meaning),
    )


def _whole(card: str) -> Offer:
    """By its address alone: with virtual functions nobody can tell what is meant."""
    return Offer(
        ({"address": NAMES[card]},), {card: Meaning(PF), **dict.fromkeys(CARDS[card], Meaning(VF))}
    )


_SOME = {"address": {"bus": "82", "slot": "03", "function": "[1-2]"}}
OFFERS: Mapping[str, Mapping[str, Offer]] = {
    "P0": {
        "none": NONE,
        "plain": _one("P0", {}, PLAIN),
        "gpu": _one("P0", {"resource_class": "pgpu", "traits": "purple"}, "PGPU", "CUSTOM_PURPLE"),
        "once": _one("P0", {"one_time_use": True}, PLAIN, "HW_PCI_ONE_TIME_USE", once=True),
        "migratable": _one("P0", {"live_migratable": "yes"}, PLAIN, "HW_PCI_LIVE_MIGRATABLE"),
    },
    "P1": {
        "none": NONE,
        "plain": _one("P1", {}, PLAIN),
        "gpu": _one("P1", {"resource_class": "pgpu"}, "PGPU"),
    },
    "PX": {"none": NONE, "plain": _one("PX", {"traits": "blue"}, PLAIN, "CUSTOM_BLUE")},
    "F2": {
        "none": NONE,
        "physical": _one("F2", {"product_id": "1572"}, PF),
        "virtual": _functions("F2", {}),
        "coloured": _functions("F2", {"traits": "blue, big"}, VF, "CUSTOM_BLUE", "CUSTOM_BIG"),
        "named": _functions("F2", {"resource_class": "fast"}, "CUSTOM_FAST"),
        "networking": _functions("F2", {"physical_network": "physnet1"}, network=True),
        "whole": _whole("F2"),
    },
    "F3": {
        "none": NONE,
        "physical": _one("F3", {"product_id": "1572"}, PF),
        "virtual": _functions("F3", {}),
        "some": Offer((_SOME,), dict.fromkeys(("V30", "V31"), Meaning(VF))),
        "mixed": Offer(
            ({"address": NAMES["V30"], "resource_class": "x"}, *_functions("F3", {}).values),
            {**_functions("F3", {}).means, "V30": Meaning("CUSTOM_X")},
        ),
        "whole": _whole("F3"),
    },
}


def card_of(device: str) -> str:
    """The card that a device is on."""
    return f"F{device[1]}" if device[0] == "V" else device


def contradictory(offered: Mapping[str, Meaning]) -> bool:
    """Whether no one provider can stand for these devices of one card."""
    counted = {device: one for device, one in offered.items() if not one.network}
    kinds = {device[0] for device in counted}
    return len(kinds) > 1 or len({(one.resource_class, one.traits) for one in counted.values()}) > 1


def values(choices: Mapping[str, str]) -> Iterable[Mapping[str, Any]]:
    """Of device_spec, for what is chosen for each card."""
    return [value for card, choice in choices.items() for value in OFFERS[card][choice].values]


ALIASES = (
    {"name": "plain", "vendor_id": "8086", "product_id": "1533"},
    {"name": "gpu", "vendor_id": "8086", "product_id": "1533", "resource_class": "pgpu"},
    {"name": "vf", "vendor_id": "8086", "product_id": "154c"},
    {"name": "fast", "vendor_id": "8086", "product_id": "154c", "resource_class": "fast"},
    {"name": "pf", "vendor_id": "8086", "product_id": "1572", "device_type": "type-PF"},
)
COUNTED_BY = {"plain": PLAIN, "gpu": "PGPU", "vf": VF, "fast": "CUSTOM_FAST", "pf": PF}
KINDS = {"plain": "P", "gpu": "P", "vf": "V", "fast": "V", "pf": "F"}
