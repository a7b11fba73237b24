"""Which PCI addresses an operator means: by a glob, part by part, or by regular expressions."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from agent.model.names import number_of
from agent.model.pci_address import PciAddress

PARTS = ("domain", "bus", "slot", "function")
# What each part can be at most; domains have 32 bits (Intel VMD, Hyper-V).
MAXIMA = {"domain": 0xFFFFFFFF, "bus": 0xFF, "slot": 0x1F, "function": 0x7}

_HEX = re.compile(r"[0-9a-fA-F]+")


@dataclass(frozen=True, slots=True)
class Glob:
    """A number for each part of the address, None for any."""

    domain: int | None = None
    bus: int | None = None
    slot: int | None = None
    function: int | None = None

    @property
    def single(self) -> PciAddress | None:
        """The one address it means, None if there can be several."""
        if self.domain is None or self.bus is None or self.slot is None or self.function is None:
            return None
        return PciAddress(self.domain, self.bus, self.slot, self.function)

    def matches(self, address: PciAddress) -> bool:
        """Whether it means the address."""
        return (
            self.domain in (None, address.domain)
            and self.bus in (None, address.bus)
            and self.slot in (None, address.slot)
            and self.function in (None, address.function)
        )


@dataclass(frozen=True, slots=True)
class Regex:
    """An expression for some parts of the address, which the whole of the part as written must match, in whatever case."""

    parts: tuple[tuple[str, re.Pattern[str]], ...]

    @property
    def single(self) -> None:
        """Never: even one that happens to match a single address does not mean a PF's functions."""
        return None

    def matches(self, address: PciAddress) -> bool:
        """Whether it means the address."""
        texts = written(address)
        return all(pattern.fullmatch(texts[name]) for name, pattern in self.parts)


AddressPattern = Glob | Regex
ANY = Glob()


def written(address: PciAddress) -> dict[str, str]:
    """The parts of the address, as they are written."""
    domain, bus, rest = str(address).split(":")
    slot, function = rest.split(".")
    return {"domain": domain, "bus": bus, "slot": slot, "function": function}


def glob(text: str) -> Glob:
    """Read ``[[[domain]:]bus:]slot][.function]``, each part hex digits or ``*``; one that is missing or blank is ``*``.

    :raises ValueError: it is something else; the message says all that is wrong.
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
    """Compile an expression for one part.

    :raises ValueError: it is none.
    """
    try:
        return re.compile(text, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from error
