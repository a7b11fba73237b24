"""By which techniques guests can have their memory encrypted, and how many contexts there are for each."""

import re
from collections.abc import Iterable, Mapping

from agent.errors import DriverError
from agent.model.encryption import EncryptionFacts, Technique
from agent.model.reading import Reading
from drivers.libvirt.answers import KernelAnswer
from drivers.libvirt.domain_capabilities import Emulator, Sev
from drivers.libvirt.xml import fault

# What the contexts of a technique are called in the kernel's capacities, and the technique itself in libvirt's list.
_CAPACITY: Mapping[Technique, str] = {"sev": "sev", "sev_es": "sev_es", "sev_snp": "sev_es", "tdx": "tdx"}
_LAUNCH: Mapping[Technique, str] = {"sev": "sev", "sev_es": "sev", "sev_snp": "sev-snp", "tdx": "tdx"}

_LINE = re.compile(r"(\w+) (\d{1,18})")


def read_encryption(kernel: KernelAnswer, emulators: Iterable[Emulator]) -> Reading[EncryptionFacts | None]:
    """What is switched on in the kernel and can be given by an emulator, None if nothing is.

    How much there is of SEV libvirt says, and the kernel where libvirt does not. Without any emulator, only the kernel is believed.
    """
    known = tuple(emulators)
    try:
        on = [technique for technique, text in kernel.switches.items() if _is_on(technique, text)]
        capacities = _capacities(kernel.capacities) if on and kernel.capacities is not None else None
    except DriverError as error:
        return Reading(None, (error.message,))
    usable = [technique for technique in on if _launches(technique, known)]
    contexts = {technique: _contexts(technique, known, capacities) for technique in sorted(usable)}
    return Reading(EncryptionFacts(contexts) if contexts else None)


def _is_on(technique: Technique, text: str) -> bool:
    word = text.strip()
    if word not in ("Y", "1", "N", "0"):
        raise fault(f"kernel parameter {technique}", f"{word[:40]!r} is neither Y nor N")
    return word in ("Y", "1")


def _launches(technique: Technique, emulators: tuple[Emulator, ...]) -> bool:
    """Whether some emulator can have such guests. A libvirt that does not list what protects guests is asked only for SEV."""
    if not emulators:
        return True
    return any(
        (technique == "tdx" or one.sev is not None) and (one.launch_security is None or _LAUNCH[technique] in one.launch_security) for one in emulators
    )


def _contexts(technique: Technique, emulators: tuple[Emulator, ...], capacities: Mapping[str, int] | None) -> int | None:
    said = [count for one in emulators if one.sev is not None and (count := _of(technique, one.sev)) is not None]
    if said:
        return max(said)
    # Where the controller is there, a technique without a line has no contexts: the firmware kept all for another.
    return None if capacities is None else capacities.get(_CAPACITY[technique], 0)


def _of(technique: Technique, sev: Sev) -> int | None:
    if technique == "tdx":
        return None
    return sev.guests if technique == "sev" else sev.es_guests


def _capacities(text: str) -> dict[str, int]:
    lines = [_LINE.fullmatch(line.strip()) for line in text.splitlines()]
    if None in lines:
        raise fault("misc.capacity", f"{text[:80]!r} is not a list of names and numbers")
    return {match[1]: int(match[2]) for match in lines if match}
