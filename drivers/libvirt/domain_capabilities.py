"""What each emulator can give guests: the enumerations of its domain capabilities, and the
techniques by which guests can have their memory encrypted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from agent.errors import DriverError
from agent.model.devices import EncryptionFacts, Technique, contexts, is_on, parse_capacities
from agent.model.facts import PartialRead
from agent.model.names import printable
from drivers.libvirt.raw_capabilities import KernelAnswer
from drivers.libvirt.xml import Element, natural, parse, text_of

# The enumerations that become traits, by the prefix of these traits.
_ENUMERATIONS: Mapping[str, tuple[str, str]] = {
    "COMPUTE_STORAGE_BUS_": ("disk", "bus"),
    "COMPUTE_GRAPHICS_MODEL_": ("video", "modelType"),
    "COMPUTE_NET_VIF_MODEL_": ("interface", "model"),
    "COMPUTE_SOUND_MODEL_": ("sound", "model"),
    "COMPUTE_VIOMMU_MODEL_": ("iommu", "model"),
}
_TPM_VERSIONS = frozenset({"1.2", "2.0"})


@dataclass(frozen=True, slots=True)
class Sev:
    """How many guests can use SEV."""

    guests: int | None
    """None if libvirt does not report it."""
    es_guests: int | None
    """Shared by SEV-ES and SEV-SNP; None if libvirt does not report it."""


@dataclass(frozen=True, slots=True)
class Emulator:
    """One emulator with one machine type."""

    architecture: str
    offers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The words of each enumeration, by the prefix of its traits; without enumerations that this
    libvirt does not have.
    """
    tpm_models: frozenset[str] = frozenset()
    """Of the emulated TPM."""
    tpm_versions: frozenset[str] = frozenset()
    """Of the emulated TPM."""
    sev: Sev | None = None
    """None if guests cannot have it."""
    launch_security: frozenset[str] | None = None
    """The launch security types; None if this libvirt does not list them."""


def read_emulators(answers: Mapping[tuple[str, str], str]) -> PartialRead[tuple[Emulator, ...]]:
    """Parse all emulators, ordered by architecture and machine. An emulator that cannot be parsed
    becomes a fault; the others stay.
    """
    emulators: list[Emulator] = []
    faults: list[str] = []
    for (architecture, machine), xml in sorted(answers.items()):
        try:
            emulators.append(_emulator(xml, f"domain capabilities of {architecture} {machine}"))
        except DriverError as error:
            faults.append(error.message)
    return PartialRead(tuple(emulators), tuple(faults))


@lru_cache(maxsize=64)  # they are long, and change only with libvirt or QEMU
def _emulator(xml: str, what: str) -> Emulator:
    """Parse the domain capabilities of one emulator and machine.

    :raises DriverError: they are garbled.
    """
    root = parse(xml, what, "domainCapabilities")
    devices = root.find("devices")
    found = {
        prefix: None if devices is None else _words(devices, *place)
        for prefix, place in _ENUMERATIONS.items()
    }
    emulated = devices is not None and "emulator" in (_words(devices, "tpm", "backendModel") or ())
    return Emulator(
        architecture=text_of(root, "arch"),
        offers={prefix: words for prefix, words in found.items() if words is not None},
        tpm_models=(_words(devices, "tpm", "model") or frozenset())
        if emulated and devices is not None
        else frozenset(),
        # A libvirt that lists no versions has both.
        tpm_versions=(_words(devices, "tpm", "backendVersion") or _TPM_VERSIONS)
        if emulated and devices is not None
        else frozenset(),
        sev=_sev(root, what),
        launch_security=None
        if (features := root.find("features")) is None
        else _words(features, "launchSecurity", "sectype"),
    )


def _words(parent: Element, name: str, enumeration: str) -> frozenset[str] | None:
    """Return the values of an enumeration; empty for a device that is not supported, None where
    libvirt does not list the device or its enumeration.
    """
    device = parent.find(name)
    if device is None:
        return None
    if device.get("supported") == "no":
        return frozenset()
    found = device.find(f"enum[@name='{enumeration}']")
    return (
        None
        if found is None
        else frozenset((value.text or "").strip() for value in found.findall("value")) - {""}
    )


def _sev(root: Element, what: str) -> Sev | None:
    sev = root.find("features/sev")
    if sev is None or sev.get("supported") != "yes":
        return None
    guests, es_guests = sev.findtext("maxGuests"), sev.findtext("maxESGuests")
    return Sev(
        None if guests is None else natural(guests, f"{what}: maxGuests"),
        None if es_guests is None else natural(es_guests, f"{what}: maxESGuests"),
    )


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
        on = [
            technique
            for technique, text in kernel.switches.items()
            if is_on(text, f"the kernel's parameter {technique}")
        ]
        capacities = (
            parse_capacities(kernel.capacities, "misc.capacity")
            if on and kernel.capacities is not None
            else None
        )
    except ValueError as error:
        return PartialRead(None, (printable(str(error)),))
    found = {
        technique: _contexts(technique, known, capacities)
        for technique in on
        if _launches(technique, known)
    }
    return PartialRead(EncryptionFacts(found) if found else None)


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
    of_emulators = [
        emulator.sev.guests if technique == "sev" else emulator.sev.es_guests
        for emulator in emulators
        if emulator.sev is not None and technique != "tdx"
    ]
    counts = [count for count in of_emulators if count is not None]
    return max(counts) if counts else contexts(technique, capacities)
