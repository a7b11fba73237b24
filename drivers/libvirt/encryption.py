"""By which techniques guests can have their memory encrypted, and how many contexts each has."""

from collections.abc import Iterable, Mapping

from agent.errors import DriverError
from agent.model.encryption import EncryptionFacts, Technique, contexts, is_on, parse_capacities
from agent.model.facts import PartialRead
from drivers.libvirt.domain_capabilities import Emulator, Sev
from drivers.libvirt.raw_capabilities import KernelAnswer
from drivers.libvirt.xml import fault

# libvirt's names of the techniques in its list of launch security types.
_LAUNCH: Mapping[Technique, str] = {
    "sev": "sev",
    "sev_es": "sev",
    "sev_snp": "sev-snp",
    "tdx": "tdx",
}


def read_encryption(
    kernel: KernelAnswer, emulators: Iterable[Emulator]
) -> PartialRead[EncryptionFacts | None]:
    """Return what is switched on in the kernel and supported by an emulator, None if nothing is.

    The number of SEV contexts is libvirt's, and the kernel's where libvirt has none. Without any
    emulator, only the kernel counts.
    """
    known = tuple(emulators)
    try:
        on = [technique for technique, text in kernel.switches.items() if _is_on(technique, text)]
        capacities = (
            _capacities(kernel.capacities) if on and kernel.capacities is not None else None
        )
    except DriverError as error:
        return PartialRead(None, (error.message,))
    found = {
        technique: _contexts(technique, known, capacities)
        for technique in on
        if _launches(technique, known)
    }
    return PartialRead(EncryptionFacts(found) if found else None)


def _is_on(technique: Technique, text: str) -> bool:
    try:
        return is_on(text)
    except ValueError as error:
        raise fault(f"the kernel's parameter {technique}", str(error)) from error


def _capacities(text: str) -> dict[str, int]:
    try:
        return parse_capacities(text)
    except ValueError as error:
        raise fault("misc.capacity", str(error)) from error


def _launches(technique: Technique, emulators: tuple[Emulator, ...]) -> bool:
    """Whether some emulator supports such guests. A libvirt that does not list launch security
    types reports only SEV.
    """
    if not emulators:
        return True
    return any(
        (technique == "tdx" or emulator.sev is not None)
        and (emulator.launch_security is None or _LAUNCH[technique] in emulator.launch_security)
        for emulator in emulators
    )


def _contexts(
    technique: Technique, emulators: tuple[Emulator, ...], capacities: Mapping[str, int] | None
) -> int | None:
    counts = [
        count
        for emulator in emulators
        if emulator.sev is not None and (count := _of(technique, emulator.sev)) is not None
    ]
    return max(counts) if counts else contexts(technique, capacities)


def _of(technique: Technique, sev: Sev) -> int | None:
    if technique == "tdx":
        return None
    return sev.guests if technique == "sev" else sev.es_guests
