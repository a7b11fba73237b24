"""By which techniques the host can encrypt the memory of guests, and how many contexts it has for each."""

import re

from agent.errors import DriverError
from agent.model.encryption import EncryptionFacts, Technique
from agent.model.reading import Reading
from drivers.host.sysfs import Sysfs

# Under the unified hierarchy of control groups, and under the older one of a folder for each controller.
CAPACITIES = ("fs/cgroup/misc.capacity", "fs/cgroup/misc/misc.capacity")

# The parameter of the kernel that switches a technique on, and what its contexts are called in the capacities.
_SWITCHES: tuple[tuple[Technique, str, str], ...] = (
    ("sev", "kvm_amd/parameters/sev", "sev"),
    ("sev_es", "kvm_amd/parameters/sev_es", "sev_es"),
    ("sev_snp", "kvm_amd/parameters/sev_snp", "sev_es"),
    ("tdx", "kvm_intel/parameters/tdx", "tdx"),
)


def read_encryption(sysfs: Sysfs) -> Reading[EncryptionFacts | None]:
    """What is switched on, None if nothing is. Without the controller ``misc`` the kernel does not say how much of it there is."""
    try:
        on = {technique: contexts for technique, parameter, contexts in _SWITCHES if _is_on(sysfs, f"module/{parameter}")}
        capacities = _capacities(sysfs) if on else {}
    except DriverError as error:
        return Reading(None, (error.message,))
    # Where the controller is there, a technique without a line has no contexts: the firmware kept all for another.
    known = {technique: capacities.get(contexts, 0) if capacities is not None else None for technique, contexts in on.items()}
    return Reading(EncryptionFacts(known) if known else None)


def _is_on(sysfs: Sysfs, path: str) -> bool:
    text = sysfs.optional_text(path)
    if text not in (None, "Y", "1", "N", "0"):
        raise sysfs.fault(path, f"{text!r} is neither Y nor N")
    return text in ("Y", "1")


def _capacities(sysfs: Sysfs) -> dict[str, int] | None:
    for path in CAPACITIES:
        text = sysfs.optional_text(path)
        if text is not None:
            lines = [re.fullmatch(r"(\w+) (\d{1,18})", line.strip()) for line in text.splitlines()]
            if None in lines:
                raise sysfs.fault(path, f"{text!r} is not a list of names and numbers")
            return {match[1]: int(match[2]) for match in lines if match}
    return None
