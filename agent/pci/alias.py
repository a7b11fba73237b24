"""``[pci] alias``: the names by which flavors request devices, and the request groups for
Placement.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

import os_traits

from agent.errors import ConfigError
from agent.model.devices import DeviceType
from agent.model.guest import PciPolicy
from agent.pci.device_spec import resource_class_key, traits_key
from agent.pci.option_value import Item, class_of_ids, in_order, read_items

OPTION = "[pci] alias"
KEYS = (
    "name",
    "vendor_id",
    "product_id",
    "device_type",
    "numa_policy",
    "resource_class",
    "traits",
    "live_migratable",
    "capability_type",
)
MAX_NAME = 256
POLICIES: tuple[PciPolicy, ...] = get_args(PciPolicy)
AliasType = Literal["type-PCI", "type-PF", "type-VF"]
TYPES: tuple[AliasType, ...] = get_args(AliasType)

Word = TypeVar("Word", bound=str)

_ID = re.compile(r"[0-9a-fA-F]{4}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One kind of device that an alias means; None: any."""

    vendor_id: str | None = None
    product_id: str | None = None
    type: DeviceType | None = None
    live_migratable: bool | None = None
    resource_class: str | None = None
    """The name as Placement has it."""
    traits: frozenset[str] = frozenset()
    """The names as Placement has them."""

    @property
    def spec(self) -> Mapping[str, str]:
        """What the devices have to match, in the form of a request."""
        given = {"vendor_id": self.vendor_id, "product_id": self.product_id, "type": self.type}
        if self.live_migratable is not None:
            given["live_migratable"] = str(self.live_migratable).lower()
        return {name: value for name, value in given.items() if value is not None}

    @property
    def counted_by(self) -> str | None:
        """The class that counts such devices in Placement; None if the alias names neither a class
        nor both ids.
        """
        if self.resource_class is not None or self.vendor_id is None or self.product_id is None:
            return self.resource_class
        return class_of_ids(self.vendor_id, self.product_id)


@dataclass(frozen=True, slots=True)
class Alias:
    """The devices that a name means: every device of one of its ``alternatives``."""

    name: str
    policy: PciPolicy
    """How near to the guest's cells the devices have to be."""
    alternatives: tuple[Alternative, ...]


Aliases = Mapping[str, Alias]


@dataclass(frozen=True, slots=True)
class _AliasEntry:
    """One object of the option without errors of its own."""

    item: Item
    name: str
    policy: PciPolicy
    alternative: Alternative


def aliases(values: Iterable[str], *, report: bool) -> tuple[Aliases, list[ConfigError]]:
    """Return the aliases of all ``values``, and everything that is wrong with them. ``report``:
    devices are reported in Placement, which chooses them then.
    """
    items, errors = read_items(OPTION, values, lists=False)
    entries = [entry for item in items for entry in _entries(item, report)]
    by_name: dict[str, list[_AliasEntry]] = {}
    for entry in entries:
        by_name.setdefault(entry.name, []).append(entry)
    for several in by_name.values():
        _check_alike(several, report)
    found = {
        name: Alias(name, several[0].policy, tuple(entry.alternative for entry in several))
        for name, several in by_name.items()
    }
    return found, in_order([*errors, *(error for item in items for error in item.errors)])


def _entries(item: Item, report: bool) -> Iterator[_AliasEntry]:
    """Yield the entry of the object; nothing if it has no name."""
    item.check_keys(KEYS)
    if not item.says("name"):
        item.wrong("name", "is missing", "give the name by which flavors ask")
    name = item.text("name")
    if name is not None and len(name) > MAX_NAME:
        item.wrong("name", f"has {len(name)} characters", f"give 1 to {MAX_NAME}")
    _word(item, "capability_type", ("pci",))
    alternative = Alternative(
        vendor_id=_four_digits(item, "vendor_id"),
        product_id=_four_digits(item, "product_id"),
        type=_word(item, "device_type", TYPES),
        live_migratable=item.boolean("live_migratable"),
        resource_class=resource_class_key(item),
        traits=traits_key(item),
    )
    policy = _word(item, "numa_policy", POLICIES) or "legacy"
    _check_enough(item, report)
    if name is not None:
        yield _AliasEntry(item, name, policy, alternative)


def _check_enough(item: Item, report: bool) -> None:
    """Check that the alias says which devices it means."""
    missing = [key for key in ("vendor_id", "product_id") if key not in item.data]
    if missing and not (report and item.says("resource_class")):
        remedy = (
            "give vendor_id and product_id, or resource_class"
            if report
            else "give vendor_id and product_id"
        )
        item.wrong(
            " and ".join(missing), "are missing" if len(missing) > 1 else "is missing", remedy
        )


def _check_alike(several: Sequence[_AliasEntry], report: bool) -> None:
    """Check objects of one name, which are alternatives: keys that do not select devices have to be
    the same in all.
    """
    first, *others = several
    for other in others:
        name, place = first.name, first.item.place
        if report:
            other.item.wrong(
                "name",
                f"= {name} is that of {place} already",
                "with [pci] report_in_placement, give each alias once",
            )
        _check_same(other.item, f"alias {name}: numa_policy", other.policy, first.policy, place)
        _check_same(
            other.item,
            f"alias {name}: device_type",
            other.alternative.type,
            first.alternative.type,
            place,
        )


def _check_same(item: Item, what: str, value: str | None, other: str | None, place: str) -> None:
    if value != other:
        item.wrong(
            what,
            f"is {value or 'not given'} here and {other or 'not given'} in {place}",
            "give the same in all objects of that name",
        )


def _four_digits(item: Item, key: str) -> str | None:
    """Return exactly four hex digits, in lower case."""
    value: Any = item.data.get(key)
    if key not in item.data:
        return None
    if isinstance(value, str) and _ID.fullmatch(value) is not None:
        return value.lower()
    item.unsuitable(key, "give a string of four hex digits such as 8086")
    return None


def _word(item: Item, key: str, words: tuple[Word, ...]) -> Word | None:
    """Return the value if it is one of ``words``."""
    found = next((word for word in words if word == item.data.get(key)), None)
    if found is None and item.says(key):
        item.unsuitable(key, f"give {'one of ' if len(words) > 1 else ''}{', '.join(words)}")
    return found


@dataclass(frozen=True, slots=True)
class DeviceGroup:
    """One request group with a suffix, for one device."""

    suffix: str
    resources: Mapping[str, int]
    required: frozenset[str]
    forbidden: frozenset[str]


def device_groups(request: str, count: int, wanted: Alternative) -> tuple[DeviceGroup, ...]:
    """Return the groups for ``count`` devices of the request with that id; none for an alias that
    names no class.

    They go together with ``group_policy=none``, because one provider may give several devices.
    """
    name = wanted.counted_by
    if name is None:
        return ()
    required, forbidden = wanted.traits | {os_traits.COMPUTE_MANAGED_PCI_DEVICE}, frozenset[str]()
    if wanted.live_migratable is not None:
        chosen = frozenset({os_traits.HW_PCI_LIVE_MIGRATABLE})
        required, forbidden = (
            (required | chosen, forbidden)
            if wanted.live_migratable
            else (required - chosen, chosen)
        )
    return tuple(
        DeviceGroup(f"{request}-{index}", {name: 1}, required, forbidden) for index in range(count)
    )
