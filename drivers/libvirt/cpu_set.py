"""Lists of CPUs and cells in libvirt's XML: ``0-3,8``, bounded before they are made."""

import re
from functools import lru_cache

from agent.model.cpu_list import parse_cpu_list
from drivers.libvirt.xml import fault

# libvirt knows no CPU above (VIR_DOMAIN_CPUMASK_LEN).
MOST = 16384

_NUMBERS = re.compile(r"[0-9]+")


def cpus_of(text: str, what: str) -> frozenset[int]:
    """The numbers of a list that is not empty. ``what`` names it in errors.

    :raises DriverError: it is no such list, is empty, or has a number that no CPU has.
    """
    try:
        return _parsed(text.strip())
    except ValueError as error:
        raise fault(what, str(error)) from error


@lru_cache(maxsize=1024)  # the same few lists come again for each CPU of a core, in each audit
def _parsed(text: str) -> frozenset[int]:
    if len(text) > MOST * 6:
        raise ValueError(f"a list of {len(text)} characters is too long")
    if any(len(one) > 5 or int(one) >= MOST for one in _NUMBERS.findall(text)):
        raise ValueError(f"{text[:40]!r} names more than libvirt knows, {MOST}")
    numbers = parse_cpu_list(text)
    if not numbers:
        raise ValueError("the list is empty")
    return numbers


def only_one(numbers: frozenset[int]) -> int | None:
    """The number, if there is just one."""
    return next(iter(numbers)) if len(numbers) == 1 else None
