"""Resource classes and traits as an operator writes them, and as Placement has them."""

import re
from functools import cache

import os_resource_classes as orc
import os_traits

from agent.model.names import MAX_TOKEN, is_custom, is_token

_FOREIGN = re.compile(r"[^A-Z0-9_]+")


def class_of(text: str) -> str:
    """The resource class that is meant by ``text``: a standard one in whatever case, else a custom one.

    :raises ValueError: its name would be too long.
    """
    name = text.strip().upper()
    return _checked(name if name in orc.STANDARDS or is_custom(name) else _custom(name))


def class_of_ids(vendor_id: str, product_id: str) -> str:
    """The resource class of a device of which nobody said another."""
    return f"CUSTOM_PCI_{vendor_id}_{product_id}".upper()


def traits_of(text: str) -> tuple[frozenset[str], list[str]]:
    """The traits that are meant by a list with commas, and for each that cannot be one the reason. Empty items do not count."""
    traits, wrong = set(), []
    for item in filter(None, map(str.strip, text.split(","))):
        try:
            traits.add(_trait(item))
        except ValueError as error:
            wrong.append(str(error))
    return frozenset(traits), wrong


def _trait(text: str) -> str:
    """One trait.

    :raises ValueError: no trait can be called so.
    """
    name = text.upper()
    return _checked(name if name in _standard_traits() or name.startswith("CUSTOM_") else _custom(name))


@cache
def _standard_traits() -> frozenset[str]:
    return frozenset(os_traits.get_traits())


def _custom(name: str) -> str:
    return "CUSTOM_" + _FOREIGN.sub("_", name)


def _checked(name: str) -> str:
    if is_token(name):
        return name
    if _FOREIGN.search(name):
        raise ValueError(f"{name[:60]} has other characters than A-Z, 0-9 and _")
    raise ValueError(f"{name[:60]}... has {len(name)} characters, more than {MAX_TOKEN}")
