"""Names of traits and resource classes: whether Placement can know them."""

from functools import cache

import os_resource_classes as orc
import os_traits

from agent.model.names import is_custom, printable


def unknown_trait(name: str) -> str:
    """Return what is wrong with the name of a trait; empty if it is a standard one, or a custom one
    that Placement can take.
    """
    if is_custom(name) or name in _standard_traits():
        return ""
    return f"{printable(repr(name))[:100]} is neither a standard trait nor CUSTOM_*"


def unknown_class(name: str) -> str:
    """Return what is wrong with the name of a resource class, as :func:`unknown_trait`."""
    if is_custom(name) or name in orc.STANDARDS:
        return ""
    return f"{printable(repr(name))[:100]} is neither a standard resource class nor CUSTOM_*"


@cache
def _standard_traits() -> frozenset[str]:
    return frozenset(os_traits.get_traits())
