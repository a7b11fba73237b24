"""Device requests of a guest: a number of devices for each alias that its flavor names; and the
aliases, ``[pci] alias``.
"""

import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, get_args

import os_traits

from agent.errors import AgentError, ConfigError
from agent.model.devices import DeviceRecord, DeviceRequest, DeviceType
from agent.model.instance import PciPolicy
from agent.model.names import ProviderUuid, printable
from agent.pci.device_spec import resource_class_key, traits_key
from agent.pci.option_value import Item, class_of_ids, in_order, read_items, unknown_key

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


def aliases(values: Iterable[str], *, report: bool) -> tuple[Aliases, list[ConfigError]]:
    """Return the aliases of all ``values``, and everything that is wrong with them. ``report``:
    devices are reported in Placement, which chooses them then.
    """
    items, errors = read_items(OPTION, values, lists=False)
    found: dict[str, Alias] = {}
    places: dict[str, str] = {}
    for item in items:
        if (alias := _alias(item, report)) is None:
            continue
        first = found.get(alias.name)
        if first is None:
            found[alias.name], places[alias.name] = alias, item.place
        else:
            _check_alike(item, alias, first, places[alias.name], report)
            found[alias.name] = replace(
                first, alternatives=(*first.alternatives, *alias.alternatives)
            )
    return found, in_order([*errors, *(error for item in items for error in item.errors)])


def _alias(item: Item, report: bool) -> Alias | None:
    """Return the alias with the one alternative of the object; None if it has no name."""
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
    return None if name is None else Alias(name, policy, (alternative,))


def _check_enough(item: Item, report: bool) -> None:
    """Check that the alias says which devices it means."""
    missing = [key for key in ("vendor_id", "product_id") if key not in item.data]
    if missing and not (report and item.says("resource_class")):
        item.wrong(
            " and ".join(missing),
            "are missing" if len(missing) > 1 else "is missing",
            (
                "give vendor_id and product_id, or resource_class"
                if report
                else "give vendor_id and product_id"
            ),
        )


def _check_alike(item: Item, alias: Alias, first: Alias, place: str, report: bool) -> None:
    """Check an object of the name that the one at ``place`` has, which it is an alternative to:
    keys that do not select devices have to be the same in all.
    """
    name, kinds = alias.name, (alias.alternatives[0].type, first.alternatives[0].type)
    if report:
        item.wrong(
            "name",
            f"= {name} is that of {place} already",
            "with [pci] report_in_placement, give each alias once",
        )
    _check_same(item, f"alias {name}: numa_policy", alias.policy, first.policy, place)
    _check_same(item, f"alias {name}: device_type", *kinds, place)


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


# Names that a request may use beside the operator's tags, and those that only Placement uses.
OF_PLACEMENT = frozenset({"resource_class", "traits"})
FAR = 1_000_000


@dataclass(frozen=True, slots=True)
class Nearness:
    """The sockets and distances of the host's cells."""

    sockets: Mapping[int, int | None] = field(default_factory=dict)
    """Cell to its socket, None if not known."""
    distances: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    """Cell to the distances of other cells."""

    def same_socket(self, node: int | None, cells: frozenset[int]) -> bool:
        """Return whether a device's cell is on a socket of one of ``cells``; False unless the
        socket of every cell is known.
        """
        if node is None or node not in self.sockets or None in self.sockets.values():
            return False
        return self.sockets[node] in {self.sockets.get(cell) for cell in cells}


def matches(device: DeviceRecord, request: DeviceRequest) -> bool:
    """Return whether the device is of a kind that the request names. PFs, vDPA devices and remote
    managed ones have to be named explicitly.
    """
    has = {
        **device.tags,
        "address": device.address,
        "vendor_id": device.vendor_id,
        "product_id": device.product_id,
        "type": device.type,
    }
    fitting = [
        spec
        for spec in request.specs
        if all(
            has.get(name, "").lower() == value.lower()
            for name, value in spec.items()
            if name not in OF_PLACEMENT | {"live_migratable"}
        )
    ]
    is_named = any(spec.get("type") == device.type or "address" in spec for spec in fitting)
    if not fitting or (device.type in ("type-PF", "vdpa") and not is_named):
        return False
    if device.tags.get("remote_managed") == "true" and not any(
        "remote_managed" in spec for spec in fitting
    ):
        return False
    migratable = {spec.get("live_migratable") for spec in request.specs}
    return len(migratable) > 1 or migratable in ({None}, {device.tags.get("live_migratable")})


EXTRA_SPEC = "pci_passthrough:alias"
# More than any host has.
MAX_COUNT = 1024


class DeviceRequestError(AgentError):
    """A flavor's request for devices is invalid.
    Remedy: correct the flavor's request, or ``[pci] alias``.
    """

    code = "pci.request"


def device_requests(
    specs: Mapping[str, str], aliases: Aliases, policy: PciPolicy | None, claim: str
) -> tuple[DeviceRequest, ...]:
    """Return the requests of a flavor with these extra ``specs``. ``policy``: that of flavor and
    image, which counts before the aliases'.

    ``claim``: the uuid of the claim, from which the ids of the requests are derived, so that a
    repeated request has the same ids.

    :raises DeviceRequestError: all that is wrong with the flavor's request.
    """
    items = [item.strip() for item in specs[EXTRA_SPEC].split(",")] if EXTRA_SPEC in specs else []
    wrong = [problem for item in items for problem in _problems(item, aliases)]
    if wrong:
        what = "; ".join(printable(why) for why, _ in wrong)
        raise DeviceRequestError(
            f"{EXTRA_SPEC} = {printable(specs[EXTRA_SPEC])}: {what}",
            "; ".join(dict.fromkeys(remedy for _, remedy in wrong)),
        )
    return tuple(
        _request(*_parts(item), aliases, policy, f"{claim}/{number}")
        for number, item in enumerate(items)
    )


def _request(
    name: str, count: str, aliases: Aliases, policy: PciPolicy | None, seed: str
) -> DeviceRequest:
    alias = aliases[name]
    first, *others = alias.alternatives
    return DeviceRequest(
        id=str(uuid.uuid5(uuid.NAMESPACE_OID, seed)),
        count=int(count),
        spec=first.spec,
        alternatives=tuple(other.spec for other in others),
        policy=policy or alias.policy,
        alias=name,
        resource_class=first.counted_by,
    )


def _problems(item: str, aliases: Aliases) -> Iterable[tuple[str, str]]:
    name, count = _parts(item)
    if not (
        count.isascii()
        and count.isdecimal()
        and len(count) <= len(str(MAX_COUNT))
        and 1 <= int(count) <= MAX_COUNT
    ):
        yield (
            f"{count or 'nothing'} is no number of devices",
            f"write name:count with a count from 1 to {MAX_COUNT}, or name alone for one",
        )
    if name not in aliases:
        yield (
            f"there is no alias {name or 'without a name'}",
            unknown_key(name, aliases) if aliases else "[pci] alias has none",
        )


def _parts(item: str) -> tuple[str, str]:
    """Return name and count, separated by the last colon, because names may have colons too."""
    name, colon, count = item.rpartition(":")
    return (name.strip(), count.strip()) if colon else (item, "1")


def with_providers(
    requests: Iterable[DeviceRequest], allocated: Mapping[ProviderUuid, Mapping[str, int]]
) -> tuple[DeviceRequest, ...]:
    """Return the requests with the providers that the scheduler ``allocated`` of their resource
    classes, as many as each request counts.
    """
    left = {
        name: [
            uuid for uuid, amounts in sorted(allocated.items()) for _ in range(amounts.get(name, 0))
        ]
        for name in {name for amounts in allocated.values() for name in amounts}
    }
    requests = tuple(requests)
    for request in requests:
        # Providers of a request that names them itself are not left for the others.
        for provider in request.providers:
            if provider in (there := left.get(request.resource_class or "", [])):
                there.remove(provider)
    return tuple(
        request if request.providers else _with_providers(request, left) for request in requests
    )


def _with_providers(request: DeviceRequest, left: dict[str, list[ProviderUuid]]) -> DeviceRequest:
    there = left.get(request.resource_class or "", [])
    if len(there) < request.count:
        return request
    left[request.resource_class or ""] = there[request.count :]
    return replace(request, providers=tuple(there[: request.count]))
