"""PCI addresses, with domains wider than 16 bits."""

import re
from dataclasses import dataclass
from typing import Self

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
