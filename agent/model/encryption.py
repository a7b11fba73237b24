"""Memory encryption of guests: the techniques that the host offers, and the number of guests at a
time.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Technique = Literal["sev", "sev_es", "sev_snp", "tdx"]


@dataclass(frozen=True, slots=True)
class EncryptionFacts:
    """The techniques that are switched on."""

    contexts: Mapping[Technique, int | None] = field(default_factory=dict)
    """Technique to the number of guests that can use it; None if the host does not report it.
    SEV-ES and SEV-SNP share their contexts: each has the full number.
    """


# The kernel parameter that switches a technique on.
SWITCHES: Mapping[Technique, str] = {
    "sev": "module/kvm_amd/parameters/sev",
    "sev_es": "module/kvm_amd/parameters/sev_es",
    "sev_snp": "module/kvm_amd/parameters/sev_snp",
    "tdx": "module/kvm_intel/parameters/tdx",
}
# In the unified hierarchy of control groups, and in the older one with a folder for each
# controller.
CAPACITIES = ("fs/cgroup/misc.capacity", "fs/cgroup/misc/misc.capacity")

# The name of a technique's contexts in the capacities.
_CONTEXTS: Mapping[Technique, str] = {
    "sev": "sev",
    "sev_es": "sev_es",
    "sev_snp": "sev_es",
    "tdx": "tdx",
}
_LINE = re.compile(r"(\w+) (\d{1,18})")


def is_on(text: str | None) -> bool:
    """Return whether the text of a switch means on; a kernel without the switch (None) has the
    technique off.

    :raises ValueError: the text is not that of a switch.
    """
    word = None if text is None else text.strip()
    if word not in (None, "Y", "1", "N", "0"):
        raise ValueError(f"{word[:80]!r} is neither Y nor N")
    return word in ("Y", "1")


def parse_capacities(text: str) -> dict[str, int]:
    """Return name to amount.

    :raises ValueError: the text is no list of names and numbers.
    """
    lines = [_LINE.fullmatch(line.strip()) for line in text.splitlines()]
    if None in lines:
        raise ValueError(f"{text[:80]!r} is not a list of names and numbers")
    return {match[1]: int(match[2]) for match in lines if match}


def contexts(technique: Technique, capacities: Mapping[str, int] | None) -> int | None:
    """Return how many guests can use the technique; None without the controller ``misc``, because
    then the kernel does not report it.

    With the controller, a technique without a line has 0: the firmware gave all contexts to another
    one.
    """
    return None if capacities is None else capacities.get(_CONTEXTS[technique], 0)
