"""What flavor and image say about one thing, and who wins. An image property is the extra spec's name with ``hw_``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar, cast

from agent.model.cpu_list import parse_cpu_list
from agent.numa.request_error import Kind, RequestError

Word = TypeVar("Word", bound=str)

_SIZE = re.compile(r"^(\d+)\s*([KMGT]i?B?)?$", re.IGNORECASE)
_SCALE = {"": 1, "K": 1, "M": 1024, "G": 1024**2, "T": 1024**3}


@dataclass(frozen=True, slots=True)
class Asked:
    """The extra specs of a flavor and the properties of an image."""

    specs: Mapping[str, str]
    properties: Mapping[str, str]

    def flavor(self, name: str) -> str | None:
        """The flavor's ``hw:`` value."""
        return self.specs.get(f"hw:{name}")

    def image(self, name: str) -> str | None:
        """The image's ``hw_`` value."""
        return self.properties.get(f"hw_{name}")

    def only_one(self, name: str, kind: Kind) -> str | None:
        """The value of whichever gives one.

        :raises RequestError: both do.
        """
        flavor, image = self.flavor(name), self.image(name)
        if flavor is not None and image is not None:
            raise RequestError(kind, f"hw_{name}", image, "the flavor gives it already", "only in one of flavor and image")
        return flavor if flavor is not None else image

    def agreed(self, name: str, kind: Kind) -> str | None:
        """The value of whichever gives one, or of both if they say the same.

        :raises RequestError: they differ.
        """
        flavor, image = self.flavor(name), self.image(name)
        if flavor is not None and image is not None and flavor != image:
            raise RequestError(kind, f"hw_{name}", image, f"the flavor says {flavor}", flavor)
        return flavor if flavor is not None else image


def word(value: str | None, key: str, allowed: tuple[Word, ...], kind: Kind) -> Word | None:
    """``value`` if it is one of ``allowed``.

    :raises RequestError: it is another.
    """
    if value is None:
        return None
    if value.lower() not in allowed:
        raise RequestError(kind, key, value, "not known", ", ".join(allowed))
    return cast(Word, value.lower())


def boolean(value: str | None) -> bool:
    """Whether a value means yes."""
    return (value or "").strip().lower() in ("1", "t", "true", "on", "y", "yes")


def page_size(value: str, key: str) -> int:
    """A page size in KiB, written as a number of KiB or with a suffix: ``2048``, ``2MB``, ``1GB``.

    :raises RequestError: it is no size.
    """
    found = _SIZE.match(value.strip())
    if found is None or not int(found[1]):
        raise RequestError("PageSizeInvalid", key, value, "no page size", "small, large, any, a number of KiB, or a size like 2MB")
    return int(found[1]) * _SCALE[(found[2] or "").upper()[:1]]


def mask(value: str, key: str, cpus: frozenset[int]) -> frozenset[int]:
    """The CPUs of ``cpus`` that a mask names: a list, or with ``^`` in front all but a list.

    :raises RequestError: it is no list, or names a CPU that is not there.
    """
    inverted = value.strip().startswith("^")
    try:
        named = parse_cpu_list(value.replace("^", "") if inverted else value)
    except ValueError as error:
        raise RequestError("MaskInvalid", key, value, str(error), "a CPU list, or ^ and a CPU list") from error
    if named - cpus:
        raise RequestError("MaskInvalid", key, value, f"the guest has no CPU {min(named - cpus)}", f"CPUs 0 to {max(cpus)}")
    return cpus - named if inverted else named
