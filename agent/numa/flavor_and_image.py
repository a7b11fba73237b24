"""What flavor and image say about one thing, and who wins. An image property is the extra spec's
name with ``hw_``.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from agent.errors import AgentError
from agent.model.cpu_list import parse_cpu_list
from agent.model.names import printable

Kind = Literal[
    "InvalidNodes",
    "TopologyForbidden",
    "Asymmetric",
    "Incomplete",
    "CpuOutOfRange",
    "CpuDuplicate",
    "CpuUnassigned",
    "MemoryMismatch",
    "InvalidCpuPolicy",
    "PinningForbidden",
    "InvalidThreadPolicy",
    "ThreadPolicyForbidden",
    "ThreadPolicyNeedsPinning",
    "MaskNeedsMixed",
    "MaskInvalid",
    "EmulatorNeedsPinning",
    "InvalidEmulatorPolicy",
    "PageSizeInvalid",
    "PageSizeForbidden",
    "LockedNeedsPages",
    "InvalidPciPolicy",
    "PciPolicyForbidden",
    "VcpuPcpuConflict",
]

# Where flavor and image, or two ways to say the same, contradict each other.
CONFLICTS: frozenset[Kind] = frozenset(
    {
        "TopologyForbidden",
        "PinningForbidden",
        "ThreadPolicyForbidden",
        "PageSizeForbidden",
        "PciPolicyForbidden",
        "VcpuPcpuConflict",
    }
)


class GuestRequestError(AgentError):
    """A flavor or image that asks for something impossible: which key and value, why, and what
    would be ``allowed``.
    """

    code = "numa.request"

    def __init__(self, kind: Kind, key: str, value: object, why: str, allowed: str) -> None:
        super().__init__(
            printable(f"{key} = {value}: {why}"),
            f"allowed: {printable(allowed)}",
            kind=kind,
            key=key,
            value=str(value),
        )
        self.kind = kind
        self.key = key


_SIZE = re.compile(r"(\d+)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE | re.ASCII)
_SCALE = {"": 1, "K": 1, "M": 1024, "G": 1024**2, "T": 1024**3}


def parse_page_size(text: str) -> int:
    """A size in KiB, out of a number of KiB or a number with a suffix.

    :raises ValueError: it is no size.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None or not int(found[1]) or (not found[2] and found[0] != found[1]):
        raise ValueError("neither a number of KiB nor a size like 2MB")
    return int(found[1]) * _SCALE[found[2].upper()]


Word = TypeVar("Word", bound=str)
Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class FlavorAndImage:
    """The extra specs of a flavor and the properties of an image. An empty value says nothing."""

    specs: Mapping[str, str]
    properties: Mapping[str, str]

    def flavor(self, name: str) -> str | None:
        """The flavor's ``hw:`` value."""
        return self.specs.get(f"hw:{name}") or None

    def image(self, name: str) -> str | None:
        """The image's ``hw_`` value."""
        return self.properties.get(f"hw_{name}") or None

    def flavor_word(self, name: str, allowed: tuple[Word, ...], kind: Kind) -> Word | None:
        """The flavor's value, one of ``allowed``.

        :raises RequestError: it is another.
        """
        return word(self.flavor(name), f"hw:{name}", allowed, kind)

    def image_word(self, name: str, allowed: tuple[Word, ...], kind: Kind) -> Word | None:
        """The image's value, one of ``allowed``.

        :raises RequestError: it is another.
        """
        return word(self.image(name), f"hw_{name}", allowed, kind)

    def only_one(self, name: str, kind: Kind) -> str | None:
        """The value of whichever gives one.

        :raises RequestError: both do.
        """
        flavor, image = self.flavor(name), self.image(name)
        if flavor is not None and image is not None:
            raise GuestRequestError(
                kind,
                f"hw_{name}",
                image,
                "the flavor gives it already",
                "only in one of flavor and image",
            )
        return flavor if flavor is not None else image

    def agreed(
        self, name: str, read: Callable[[str | None, str], Read | None], kind: Kind
    ) -> Read | None:
        """The value of whichever gives one, or of both if they say the same. ``read`` gets the text
        and its key.

        :raises RequestError: they differ.
        """
        flavor, image = read(self.flavor(name), f"hw:{name}"), read(self.image(name), f"hw_{name}")
        if flavor is not None and image is not None and flavor != image:
            raise GuestRequestError(
                kind,
                f"hw_{name}",
                self.image(name),
                f"the flavor says {self.flavor(name)}",
                str(self.flavor(name)),
            )
        return flavor if flavor is not None else image


def word(value: str | None, key: str, allowed: tuple[Word, ...], kind: Kind) -> Word | None:
    """``value`` if it is one of ``allowed``, in whatever case.

    :raises RequestError: it is another.
    """
    if value is None:
        return None
    for one in allowed:
        if value.strip().lower() == one:
            return one
    raise GuestRequestError(kind, key, value, "not known", ", ".join(allowed))


def boolean(value: str | None) -> bool:
    """Whether a value means yes. Anything unknown means no, as in the API that accepted it."""
    return (value or "").strip().lower() in ("1", "t", "true", "on", "y", "yes")


def number(value: str | None, key: str, kind: Kind) -> int | None:
    """A number, 0 or more.

    :raises RequestError: it is none.
    """
    if value is None:
        return None
    if not (value.strip().isascii() and value.strip().isdecimal()):
        raise GuestRequestError(kind, key, value, "no number", "0 or more")
    return int(value)


def page_size(value: str, key: str) -> int:
    """A page size in KiB.

    :raises RequestError: it is no size.
    """
    try:
        return parse_page_size(value)
    except ValueError as error:
        raise GuestRequestError(
            "PageSizeInvalid",
            key,
            value,
            str(error),
            "small, large, any, a number of KiB, or a size like 2MB",
        ) from error


def mask(value: str, key: str, cpus: frozenset[int]) -> frozenset[int]:
    """The CPUs of ``cpus`` that a mask names: a list; one that begins with ``^`` is a list of
    exceptions from all.

    :raises RequestError: it is no list, or names a CPU that is not there.
    """
    # Only the items with ^ are left out, as everywhere: ^0,2 is all but 0, and 2 is among them
    # anyway.
    begun = f"0-{max(cpus)}," if value.strip().startswith("^") else ""
    try:
        named = parse_cpu_list(begun + value)
    except ValueError as error:
        raise GuestRequestError(
            "MaskInvalid",
            key,
            value,
            str(error),
            "a CPU list, each item with ^ if it is an exception",
        ) from error
    if named - cpus:
        raise GuestRequestError(
            "MaskInvalid",
            key,
            value,
            f"the guest has no CPU {min(named - cpus)}",
            f"CPUs 0 to {max(cpus)}",
        )
    return named
