"""Values of flavor and image for the same setting, and which of them counts. An image property is
called like the extra spec, with ``hw_`` for ``hw:``.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from agent.errors import AgentError
from agent.model.facts import parse_cpu_list
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

# Contradictions between flavor and image, or between two extra specs for the same setting.
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
    """A flavor or image asks for something impossible.
    Remedy: correct the extra spec or image property that the message names.
    """

    code = "numa.request"

    def __init__(self, kind: Kind, key: str, value: object, why: str, allowed: str) -> None:
        """``key`` and ``value``: the request. ``why``: what is wrong with it. ``allowed``: what
        would be allowed.
        """
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
    """Return a size in KiB, from a number of KiB or a number with a suffix.

    :raises ValueError: the text is no size.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None or not int(found[1]) or (not found[2] and found[0] != found[1]):
        raise ValueError("neither a number of KiB nor a size like 2MB")
    return int(found[1]) * _SCALE[found[2].upper()]


Word = TypeVar("Word", bound=str)
Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class FlavorAndImage:
    """The extra specs of a flavor and the properties of an image. An empty value counts as
    missing.
    """

    specs: Mapping[str, str]
    properties: Mapping[str, str]

    def flavor(self, name: str) -> str | None:
        """Return the flavor's ``hw:`` value."""
        return self.specs.get(f"hw:{name}") or None

    def image(self, name: str) -> str | None:
        """Return the image's ``hw_`` value."""
        return self.properties.get(f"hw_{name}") or None

    def flavor_word(self, name: str, allowed: tuple[Word, ...], kind: Kind) -> Word | None:
        """Return the flavor's value, one of ``allowed``.

        :raises GuestRequestError: it is another.
        """
        return word(self.flavor(name), f"hw:{name}", allowed, kind)

    def image_word(self, name: str, allowed: tuple[Word, ...], kind: Kind) -> Word | None:
        """Return the image's value, one of ``allowed``.

        :raises GuestRequestError: it is another.
        """
        return word(self.image(name), f"hw_{name}", allowed, kind)

    def only_one(self, name: str, kind: Kind) -> str | None:
        """Return the value of the flavor or of the image, of which only one may have the setting.

        :raises GuestRequestError: both have it.
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
        """Return the value of the flavor or of the image, which have to agree if both have the
        setting. ``read`` gets the text and its key.

        :raises GuestRequestError: they differ.
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
    """Return ``value`` in lower case if it is one of ``allowed``.

    :raises GuestRequestError: it is another.
    """
    if value is None:
        return None
    for expected in allowed:
        if value.strip().lower() == expected:
            return expected
    raise GuestRequestError(kind, key, value, "not known", ", ".join(allowed))


def boolean(value: str | None) -> bool:
    """Return whether a value means yes. An unknown value means no, as in the API that accepted
    it.
    """
    return (value or "").strip().lower() in ("1", "t", "true", "on", "y", "yes")


def number(value: str | None, key: str, kind: Kind) -> int | None:
    """Return a number, 0 or more.

    :raises GuestRequestError: the value is none.
    """
    if value is None:
        return None
    if not (value.strip().isascii() and value.strip().isdecimal()):
        raise GuestRequestError(kind, key, value, "no number", "0 or more")
    return int(value)


def page_size(value: str, key: str) -> int:
    """Return a page size in KiB.

    :raises GuestRequestError: the value is no size.
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
    """Return the CPUs of ``cpus`` that a mask names: a CPU list; a mask that begins with ``^`` is a
    list of exceptions from all CPUs.

    :raises GuestRequestError: the mask is no list, or names a CPU that the guest does not have.
    """
    # Only the items with ^ are exceptions, as in every CPU list: ^0,2 is all CPUs but 0, of which 2
    # is one anyway.
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
