"""``[pci] device_spec``: the devices that the operator offers to guests, and their properties."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from agent.errors import ConfigError
from agent.model.devices import PciAddress
from agent.model.names import number_of
from agent.pci.option_value import (
    Item,
    class_of,
    in_order,
    read_items,
    shown,
    traits_of,
    unknown_key,
)

PARTS = ("domain", "bus", "slot", "function")
# The maximum of each part; domains have 32 bits (Intel VMD, Hyper-V).
MAXIMA = {"domain": 0xFFFFFFFF, "bus": 0xFF, "slot": 0x1F, "function": 0x7}

_HEX = re.compile(r"[0-9a-fA-F]+")


@dataclass(frozen=True, slots=True)
class Glob:
    """An address pattern with a number for each part of the address, None for any."""

    domain: int | None = None
    bus: int | None = None
    slot: int | None = None
    function: int | None = None

    @property
    def single(self) -> PciAddress | None:
        """The only address that matches, None if there can be several."""
        if self.domain is None or self.bus is None or self.slot is None or self.function is None:
            return None
        return PciAddress(self.domain, self.bus, self.slot, self.function)

    def matches(self, address: PciAddress) -> bool:
        """Return whether the pattern matches the address."""
        return (
            self.domain in (None, address.domain)
            and self.bus in (None, address.bus)
            and self.slot in (None, address.slot)
            and self.function in (None, address.function)
        )


@dataclass(frozen=True, slots=True)
class Regex:
    """An address pattern with a regular expression for some parts of the address. The expression
    has to match the whole part as written, in upper or lower case.
    """

    parts: tuple[tuple[str, re.Pattern[str]], ...]

    @property
    def single(self) -> None:
        """Always None: even an expression that happens to match a single address does not mean a
        PF's functions.
        """
        return None

    def matches(self, address: PciAddress) -> bool:
        """Return whether the pattern matches the address."""
        texts = written(address)
        return all(pattern.fullmatch(texts[name]) for name, pattern in self.parts)


AddressPattern = Glob | Regex
ANY = Glob()


def written(address: PciAddress) -> dict[str, str]:
    """Return the parts of the address, as they are written."""
    domain, bus, rest = str(address).split(":")
    slot, function = rest.split(".")
    return {"domain": domain, "bus": bus, "slot": slot, "function": function}


def glob(text: str) -> Glob:
    """Parse ``[[[domain]:]bus:]slot][.function]``, each part hex digits or ``*``; a part that is
    missing or blank is ``*``.

    :raises ValueError: the text is something else; the message names all that is wrong.
    """
    left, _, function = text.partition(".")
    pieces = left.split(":")
    if len(pieces) > 3:
        raise ValueError(f"{number_of(len(pieces), 'part')} before the function")
    texts = dict(zip(PARTS, [*[""] * (3 - len(pieces)), *pieces, function], strict=True))
    wrong = [why for name, part in texts.items() for why in _problems(name, part.strip())]
    if wrong:
        raise ValueError("; ".join(wrong))
    return Glob(*(None if part.strip() in ("", "*") else int(part, 16) for part in texts.values()))


def _problems(name: str, part: str) -> Iterator[str]:
    if part in ("", "*"):
        return
    if _HEX.fullmatch(part) is None:
        yield f"{name} {part} is neither hex digits nor *"
    elif len(part.lstrip("0")) > 8 or int(part, 16) > MAXIMA[name]:
        yield f"{name} {part} is above {MAXIMA[name]:x}"


def expression(text: str) -> re.Pattern[str]:
    """Compile a regular expression for one part.

    :raises ValueError: the text is no regular expression.
    """
    try:
        return re.compile(text, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from error


OPTION = "[pci] device_spec"
KEYS = (
    "vendor_id",
    "product_id",
    "address",
    "devname",
    "physical_network",
    "trusted",
    "remote_managed",
    "managed",
    "live_migratable",
    "one_time_use",
    "resource_class",
    "traits",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """One object of the option. None: any, for ids; else not given."""

    place: str
    """``#2`` for the object of the second value, ``#2.3`` for the third one in its list."""
    vendor_id: str | None = None
    product_id: str | None = None
    address: AddressPattern = ANY
    devname: str | None = None
    physical_network: str | None = None
    trusted: bool | None = None
    remote_managed: bool = False
    managed: bool | None = None
    live_migratable: bool | None = None
    one_time_use: bool | None = None
    resource_class: str | None = None
    """The name as Placement has it."""
    traits: frozenset[str] = frozenset()
    """The names as Placement has them."""

    @property
    def tags(self) -> Mapping[str, str]:
        """The given values of the keys by which requests select devices."""
        network = self.physical_network
        flags = {
            "trusted": self.trusted,
            "managed": self.managed,
            "live_migratable": self.live_migratable,
        }
        return ({} if network is None else {"physical_network": network}) | {
            name: str(flag).lower() for name, flag in flags.items() if flag is not None
        }


def device_specs(
    values: Iterable[str], *, report: bool
) -> tuple[tuple[DeviceSpec, ...], list[ConfigError]]:
    """Return the objects of all ``values`` in their order, and everything that is wrong with them.
    ``report``: devices are reported in Placement.
    """
    items, errors = read_items(OPTION, values, lists=True)
    specs = tuple(_spec(item, report) for item in items)
    return specs, in_order([*errors, *(error for item in items for error in item.errors)])


def _spec(item: Item, report: bool) -> DeviceSpec:
    item.check_keys(KEYS)
    spec = DeviceSpec(
        place=item.place,
        vendor_id=item.hex_id("vendor_id"),
        product_id=item.hex_id("product_id"),
        address=_address(item),
        devname=item.text("devname"),
        physical_network=item.text("physical_network"),
        trusted=item.boolean("trusted"),
        remote_managed=item.boolean("remote_managed") or False,
        managed=item.boolean("managed"),
        live_migratable=item.boolean("live_migratable"),
        one_time_use=item.boolean("one_time_use"),
        resource_class=resource_class_key(item),
        traits=traits_key(item),
    )
    if item.says("devname") and item.says("address"):
        item.wrong("devname", "is given together with address", "keep one of them")
    if item.says("devname") and report:
        # Because the host does not show the name while a guest has the device.
        item.wrong("devname", "cannot be used with [pci] report_in_placement", "use address")
    if spec.one_time_use and not report:
        item.wrong(
            "one_time_use",
            "= true needs [pci] report_in_placement",
            "set [pci] report_in_placement = true, or remove the key",
        )
    return spec


def resource_class_key(item: Item) -> str | None:
    """Return the resource class that an object names."""
    text = item.text("resource_class")
    try:
        return None if text is None else class_of(text)
    except ValueError as error:
        item.wrong("resource_class", f"= {shown(text)}: {error}", "give a shorter name")
    return None


def traits_key(item: Item) -> frozenset[str]:
    """Return the traits that an object names."""
    value = item.data.get("traits") or ""
    if not isinstance(value, str):
        item.unsuitable("traits", "give the traits in one text, with commas between them")
        return frozenset()
    traits, wrong = traits_of(value)
    for why in wrong:
        item.wrong("traits", f"= {shown(value)}: {why}", "correct the name")
    return traits


def _address(item: Item) -> AddressPattern:
    value = item.data["address"] if item.says("address") else ""
    if isinstance(value, dict):
        return Regex(tuple(_expressions(item, value)))
    if not isinstance(value, str):
        item.unsuitable(
            "address",
            "give text such as 0000:81:00.* or an object with domain, bus, slot, function",
        )
        return ANY
    try:
        return glob(value)
    except ValueError as error:
        item.wrong(
            "address",
            f"= {shown(value)}: {error}",
            "write it as 0000:81:00.0, each part hex digits or *",
        )
        return ANY


def _expressions(item: Item, value: Mapping[str, object]) -> Iterator[tuple[str, re.Pattern[str]]]:
    for name, text in value.items():
        if name not in PARTS:
            item.wrong(
                f"address.{name}", f"is an unknown key in {shown(value)}", unknown_key(name, PARTS)
            )
        elif not isinstance(text, str):
            item.wrong(
                f"address.{name}",
                f"= {shown(text)} in {shown(value)}",
                "give a regular expression as text",
            )
        else:
            try:
                yield name, expression(text)
            except ValueError as error:
                item.wrong(
                    f"address.{name}",
                    f"= {shown(text)} in {shown(value)}: {error}",
                    "correct the regular expression",
                )
