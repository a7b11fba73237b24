"""Guests with encrypted memory: by which techniques the host can have them, and how
many at once.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Technique = Literal["sev", "sev_es", "sev_snp", "tdx"]


@dataclass(frozen=True, slots=True)
class EncryptionFacts:
    """``contexts``: each technique that is switched on, with how many guests it can have; None if
    the host does not say.

    SEV-ES and SEV-SNP share their contexts: both are given all that there are.
    """

    contexts: Mapping[Technique, int | None] = field(default_factory=dict)


# The parameter that switches a technique on.
SWITCHES: Mapping[Technique, str] = {
    "sev": "module/kvm_amd/parameters/sev",
    "sev_es": "module/kvm_amd/parameters/sev_es",
    "sev_snp": "module/kvm_amd/parameters/sev_snp",
    "tdx": "module/kvm_intel/parameters/tdx",
}
# Under the unified hierarchy of control groups, and under the older one of a folder for each
# controller.
CAPACITIES = ("fs/cgroup/misc.capacity", "fs/cgroup/misc/misc.capacity")

# What the contexts of a technique are called in the capacities.
_CONTEXTS: Mapping[Technique, str] = {
    "sev": "sev",
    "sev_es": "sev_es",
    "sev_snp": "sev_es",
    "tdx": "tdx",
}
_LINE = re.compile(r"(\w+) (\d{1,18})")


def is_on(text: str | None) -> bool:
    """What the text of a switch says; a kernel without the switch has it off.

    :raises ValueError: the text is no switch's.
    """
    word = None if text is None else text.strip()
    if word not in (None, "Y", "1", "N", "0"):
        raise ValueError(f"{word[:80]!r} is neither Y nor N")
    return word in ("Y", "1")


def parse_capacities(text: str) -> dict[str, int]:
    """The amounts by name.

    :raises ValueError: the text is no list of names and numbers.
    """
    lines = [_LINE.fullmatch(line.strip()) for line in text.splitlines()]
    if None in lines:
        raise ValueError(f"{text[:80]!r} is not a list of names and numbers")
    return {match[1]: int(match[2]) for match in lines if match}


def contexts(technique: Technique, capacities: Mapping[str, int] | None) -> int | None:
    """How many guests the technique can have; None without the controller ``misc``, because then
    the kernel does not say.

    Where the controller is there, a technique without a line has none: the firmware kept all for
    another.
    """
    return None if capacities is None else capacities.get(_CONTEXTS[technique], 0)
