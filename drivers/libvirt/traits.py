"""The standard traits of a host's root: what its CPUs are, and what its emulators can give guests."""

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

import os_traits

from drivers.libvirt.domain_capabilities import Emulator

# What QEMU has, in the words of the traits, where libvirt does not list it; with the libvirt and the QEMU that it came with.
_ALWAYS = (0, 0)
_BY_VERSION: dict[str, dict[str, tuple[int, int]]] = {
    "COMPUTE_NET_VIF_MODEL_": {
        **dict.fromkeys(("E1000", "E1000E", "LAN9118", "NE2K_PCI", "PCNET", "RTL8139", "SPAPR_VLAN", "VIRTIO", "VMXNET3"), _ALWAYS),
        "IGB": (9_003_000, 8_000_000),
    },
    "COMPUTE_SOUND_MODEL_": {
        **dict.fromkeys(("SB16", "ES1370", "PCSPK", "AC97", "ICH6", "ICH9", "USB"), _ALWAYS),
        "VIRTIO": (10_004_000, 8_002_000),
    },
}
_VIOMMU_OF_ARCHITECTURE = {"x86_64": "INTEL", "aarch64": "SMMUV3"}
_VIOMMU_VIRTIO = 8_003_000
_LISTED_ONLY = ("COMPUTE_STORAGE_BUS_", "COMPUTE_GRAPHICS_MODEL_")
# No emulator's: the functions of a card are.
_NOT_EMULATED = frozenset({os_traits.COMPUTE_NET_VIF_MODEL_SRIOV})

# libvirt's name of an architecture, where the traits have another.
_ARCHITECTURES = {"armv6l": "ARMV6", "armv7l": "ARMV7", "armv7b": "ARMV7B"}


def architecture_traits(architecture: str) -> dict[str, bool]:
    """Which of the standard architectures the host is."""
    return _chosen("HW_ARCH_", {_ARCHITECTURES.get(architecture, architecture)})


def hyperthreading_trait(smt: bool) -> dict[str, bool]:
    """Whether cores have more than one thread."""
    return {os_traits.HW_CPU_HYPERTHREADING: smt}


def emulator_traits(emulators: Sequence[Emulator], libvirt_version: int, qemu_version: int, *, vtpm: bool) -> dict[str, bool]:
    """What guests of any of the emulators can be given. ``vtpm``: whether the operator lets them have emulated TPMs.

    What neither libvirt lists nor its version tells has no trait, neither true nor false.
    """
    traits = _chosen("COMPUTE_ARCH_", {one.architecture for one in emulators})
    for prefix in _LISTED_ONLY:
        listed = _listed(emulators, prefix)
        traits |= _chosen(prefix, listed) if listed is not None else {}
    for prefix, since in _BY_VERSION.items():
        listed = _listed(emulators, prefix)
        has = {name for name, (libvirt, qemu) in since.items() if libvirt_version >= libvirt and qemu_version >= qemu}
        traits |= _chosen(prefix, has if listed is None else listed)
    return traits | _viommu(emulators, libvirt_version) | _tpm(emulators, vtpm) | {os_traits.COMPUTE_NET_VIRTIO_PACKED: True}


def tpm_secret_traits(allowed: Collection[str]) -> dict[str, bool]:
    """Where the secret of a guest's emulated TPM may be kept: the operator's word alone, because no emulator knows."""
    return _chosen("COMPUTE_SECURITY_TPM_SECRET_SECURITY_", allowed)


def _listed(emulators: Iterable[Emulator], prefix: str) -> set[str] | None:
    """The words that some emulator lists; None if none lists any."""
    said = [one.offers[prefix] for one in emulators if prefix in one.offers]
    return set().union(*said) if said else None


def _viommu(emulators: Sequence[Emulator], libvirt_version: int) -> dict[str, bool]:
    models = _listed(emulators, "COMPUTE_VIOMMU_MODEL_")
    if models is None:
        models = {model for one in emulators if (model := _VIOMMU_OF_ARCHITECTURE.get(one.architecture))}
        models |= {"VIRTIO"} if libvirt_version >= _VIOMMU_VIRTIO else set()
    return _chosen("COMPUTE_VIOMMU_MODEL_", models | ({"AUTO"} if models else set()))


def _tpm(emulators: Sequence[Emulator], vtpm: bool) -> dict[str, bool]:
    models = {word for one in emulators for word in one.tpm_models} if vtpm else set()
    versions = {word for one in emulators for word in one.tpm_versions} if vtpm else set()
    return {
        os_traits.COMPUTE_SECURITY_TPM_TIS: "tpm-tis" in models,
        os_traits.COMPUTE_SECURITY_TPM_CRB: "tpm-crb" in models,
        os_traits.COMPUTE_SECURITY_TPM_1_2: "1.2" in versions,
        os_traits.COMPUTE_SECURITY_TPM_2_0: "2.0" in versions,
    }


def _chosen(prefix: str, words: Iterable[str]) -> dict[str, bool]:
    """All standard traits that begin with ``prefix``: true those that one of ``words`` is; a word that is no trait is dropped."""
    has = {prefix + word.upper().replace("-", "_") for word in words}
    return {trait: trait in has for trait in _standard(prefix)}


@lru_cache
def _standard(prefix: str) -> tuple[str, ...]:
    return tuple(sorted(set(os_traits.get_traits(prefix)) - _NOT_EMULATED))
