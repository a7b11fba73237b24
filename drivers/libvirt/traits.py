"""The standard traits of a host's root: its CPUs, and what its emulators can give guests."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache

import os_traits

from agent.errors import DriverError
from drivers.libvirt.domain_capabilities import Emulator
from drivers.libvirt.raw_capabilities import RawCapabilities
from drivers.libvirt.xml import parse

_OFFERED_ALWAYS = (
    os_traits.COMPUTE_ACCELERATORS,
    os_traits.COMPUTE_DEVICE_TAGGING,
    os_traits.COMPUTE_NET_ATTACH_INTERFACE,
    os_traits.COMPUTE_NET_ATTACH_INTERFACE_WITH_TAG,
    os_traits.COMPUTE_REMOTE_MANAGED_PORTS,
    os_traits.COMPUTE_RESCUE_BFV,
    os_traits.COMPUTE_SOCKET_PCI_NUMA_AFFINITY,
    os_traits.COMPUTE_STORAGE_VIRTIO_FS,
    os_traits.COMPUTE_TRUSTED_CERTS,
    os_traits.COMPUTE_VOLUME_ATTACH_WITH_TAG,
    os_traits.COMPUTE_VOLUME_EXTEND,
    os_traits.COMPUTE_VOLUME_MULTI_ATTACH,
)
_NEVER = (
    os_traits.COMPUTE_SAME_HOST_COLD_MIGRATE,
    os_traits.COMPUTE_EPHEMERAL_ENCRYPTION,
    os_traits.COMPUTE_EPHEMERAL_ENCRYPTION_LUKS,
    os_traits.COMPUTE_EPHEMERAL_ENCRYPTION_PLAIN,
)
# By the version of libvirt that introduced them.
_SINCE = {
    os_traits.COMPUTE_SECURITY_STATELESS_FIRMWARE: 8_006_000,
    os_traits.COMPUTE_ADDRESS_SPACE_PASSTHROUGH: 8_007_000,
    os_traits.COMPUTE_ADDRESS_SPACE_EMULATED: 8_007_000,
}
_IMAGES = "COMPUTE_IMAGE_TYPE_"
# Types that are handed to guests as they are, or converted to a disk.
_IMAGE_TYPES = frozenset({"AKI", "AMI", "ARI", "ISO", "QCOW2", "RAW"})


def compute_capabilities(
    answers: RawCapabilities,
    excluded_images: Collection[str],
    *,
    file_backed_memory: bool,
    raw_images_only: bool = False,
) -> Mapping[str, bool]:
    """Return the capabilities of the compute service, by libvirt's version and the options.

    ``excluded_images``: types of images that the operator does not allow here;
    ``file_backed_memory``: files back the memory of guests; ``raw_images_only``: disks cannot be
    made from QCOW2.
    """
    excluded = {image_type.strip().upper() for image_type in excluded_images}
    types = {trait.removeprefix(_IMAGES) for trait in os_traits.get_traits(_IMAGES)}
    return {
        **dict.fromkeys(_OFFERED_ALWAYS, True),
        **dict.fromkeys(_NEVER, False),
        os_traits.COMPUTE_MEM_BACKING_FILE: file_backed_memory,
        **{trait: answers.libvirt_version >= since for trait, since in _SINCE.items()},
        **{
            _IMAGES + image_type: image_type
            in _IMAGE_TYPES - excluded - ({"QCOW2"} if raw_images_only else set())
            for image_type in sorted(types)
        },
        **_secure_boot(answers),
    }


def _secure_boot(answers: RawCapabilities) -> Mapping[str, bool]:
    """Return whether some emulator has a firmware for secure boot; empty where no emulator reports
    it.
    """
    supported = []
    for (architecture, machine), xml in answers.domain_capabilities.items():
        try:
            root = parse(
                xml, f"domain capabilities of {architecture} {machine}", "domainCapabilities"
            )
        except DriverError:
            # The traits of the facts are incomplete for the same reason, and report it.
            continue
        values = root.findall("os/loader/enum[@name='secure']/value")
        supported.append(any((value.text or "").strip() == "yes" for value in values))
    return {os_traits.COMPUTE_SECURITY_UEFI_SECURE_BOOT: any(supported)} if supported else {}


WHAT = "baselineCPU"

_OFF = frozenset({"disable", "forbid"})

# Features whose trait has libvirt's name, without dots and dashes.
_SAME = (
    "3dnow",
    "abm",
    "amx-bf16",
    "amx-int8",
    "amx-tile",
    "avx",
    "avx2",
    "avx512-vpopcntdq",
    "avx512bitalg",
    "avx512bw",
    "avx512cd",
    "avx512dq",
    "avx512er",
    "avx512f",
    "avx512ifma",
    "avx512pf",
    "avx512vbmi",
    "avx512vbmi2",
    "avx512vl",
    "avx512vnni",
    "bmi2",
    "f16c",
    "fma4",
    "mmx",
    "mpx",
    "pdpe1gb",
    "sgx",
    "sse",
    "sse2",
    "sse4.1",
    "sse4.2",
    "sse4a",
    "ssse3",
    "stibp",
    "tbm",
    "xop",
)

# Features whose traits have other names.
_OTHER = {
    "aes": ("AESNI",),
    "amd-no-ssb": ("AMD_NO_SSB",),
    "amd-ssbd": ("AMD_SSBD",),
    "bmi1": ("BMI",),
    "fma": ("FMA3",),
    "gfni": ("AVX512GFNI",),
    "ibpb": ("AMD_IBPB",),
    "md-clear": ("INTEL_MD_CLEAR",),
    "pcid": ("INTEL_PCID",),
    "pclmulqdq": ("CLMUL",),
    "pclmuldq": ("CLMUL",),
    "pni": ("SSE3",),
    "rtm": ("TSX",),
    "sha-ni": ("SHA",),
    "spec-ctrl": ("INTEL_SPEC_CTRL",),
    "ssbd": ("INTEL_SSBD",),
    "svm": ("SVM", "AMD_SVM"),
    "vaes": ("AVX512VAES",),
    "virt-ssbd": ("AMD_VIRT_SSBD",),
    "vmx": ("VMX", "INTEL_VMX"),
    "vpclmulqdq": ("AVX512VPCLMULQDQ",),
}

_X86 = {name: (name.upper().replace(".", "").replace("-", ""),) for name in _SAME} | _OTHER
_STANDARD = frozenset(os_traits.get_traits("HW_CPU_"))


def _of_x86(name: str) -> set[str]:
    return {f"HW_CPU_X86_{trait}" for trait in _X86.get(name, ())} & _STANDARD


def _of_arm(name: str) -> set[str]:
    """Return the traits of a feature: libvirt and the traits use the kernel's names."""
    return {f"HW_CPU_AARCH64_{name.upper()}"} & _STANDARD


_ALL = {
    "x86_64": frozenset(trait for name in _X86 for trait in _of_x86(name)),
    "i686": frozenset(trait for name in _X86 for trait in _of_x86(name)),
    "aarch64": frozenset(trait for trait in _STANDARD if trait.startswith("HW_CPU_AARCH64_")),
}


def expanded_features(answers: Sequence[str]) -> frozenset[str]:
    """Return the features of all CPUs that ``baselineCPU`` expanded, without those that it switched
    off.

    :raises DriverError: one of the answers is malformed.
    """
    found = (feature for xml in answers for feature in parse(xml, WHAT, "cpu").findall("feature"))
    return frozenset(
        feature.get("name", "") for feature in found if feature.get("policy") not in _OFF
    ) - {""}


def with_flags(features: frozenset[str], flags: Iterable[str]) -> frozenset[str]:
    """Return ``features`` with what the operator adds (``pcid``, ``+pcid``) and removes
    (``-pcid``).
    """
    words = [flag.strip().lower() for flag in flags]
    added = {word.removeprefix("+") for word in words if not word.startswith("-")}
    return (features | added) - {word[1:] for word in words if word.startswith("-")}


def feature_traits(
    architecture: str, features: frozenset[str], *, is_complete: bool
) -> dict[str, bool]:
    """Return the standard traits of ``features``. ``is_complete``: the list of features is
    complete, so a missing feature makes its trait false.
    """
    known = _ALL.get(architecture, frozenset())
    of_one = _of_arm if architecture == "aarch64" else _of_x86
    found = {trait for name in features for trait in of_one(name)} & known
    return {trait: trait in found for trait in sorted(known) if is_complete or trait in found}


# What QEMU offers, in the words of the traits, where libvirt does not list it; with the versions of
# libvirt and QEMU that introduced it.
_ALWAYS = (0, 0)
_BY_VERSION: dict[str, dict[str, tuple[int, int]]] = {
    "COMPUTE_NET_VIF_MODEL_": {
        **dict.fromkeys(
            (
                "E1000",
                "E1000E",
                "LAN9118",
                "NE2K_PCI",
                "PCNET",
                "RTL8139",
                "SPAPR_VLAN",
                "VIRTIO",
                "VMXNET3",
            ),
            _ALWAYS,
        ),
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
# Not emulated, but offered by functions of a card.
_NOT_EMULATED = frozenset({os_traits.COMPUTE_NET_VIF_MODEL_SRIOV})

# libvirt's names of architectures that the traits name differently.
_ARCHITECTURES = {"armv6l": "ARMV6", "armv7l": "ARMV7", "armv7b": "ARMV7B"}


def architecture_traits(architecture: str) -> dict[str, bool]:
    """Return which of the standard architectures the host has."""
    return _choices("HW_ARCH_", {_ARCHITECTURES.get(architecture, architecture)})


def emulator_traits(
    emulators: Sequence[Emulator], libvirt_version: int, qemu_version: int, *, vtpm: bool
) -> dict[str, bool]:
    """Return what guests of any of the emulators can be given. ``vtpm``: guests may have emulated
    TPMs.

    What neither libvirt lists nor its version implies has no trait, neither true nor false.
    """
    traits = _choices("COMPUTE_ARCH_", {emulator.architecture for emulator in emulators})
    for prefix in _LISTED_ONLY:
        listed = _listed_words(emulators, prefix)
        traits |= _choices(prefix, listed) if listed is not None else {}
    for prefix, since in _BY_VERSION.items():
        listed = _listed_words(emulators, prefix)
        has = {
            name
            for name, (libvirt, qemu) in since.items()
            if libvirt_version >= libvirt and qemu_version >= qemu
        }
        traits |= _choices(prefix, has if listed is None else listed)
    return (
        traits
        | _viommu(emulators, libvirt_version)
        | _tpm(emulators, vtpm)
        | {os_traits.COMPUTE_NET_VIRTIO_PACKED: True}
    )


def tpm_secret_traits(allowed: Collection[str]) -> dict[str, bool]:
    """Return where the secret of a guest's emulated TPM may be kept; from the option alone, because
    no emulator reports it.
    """
    return _choices("COMPUTE_SECURITY_TPM_SECRET_SECURITY_", allowed)


def _listed_words(emulators: Iterable[Emulator], prefix: str) -> set[str] | None:
    """Return the words that some emulator lists; None if none lists any."""
    listed = [emulator.offers[prefix] for emulator in emulators if prefix in emulator.offers]
    return set().union(*listed) if listed else None


def _viommu(emulators: Sequence[Emulator], libvirt_version: int) -> dict[str, bool]:
    models = _listed_words(emulators, "COMPUTE_VIOMMU_MODEL_")
    if models is None:
        models = {
            model
            for emulator in emulators
            if (model := _VIOMMU_OF_ARCHITECTURE.get(emulator.architecture))
        }
        models |= {"VIRTIO"} if libvirt_version >= _VIOMMU_VIRTIO else set()
    return _choices("COMPUTE_VIOMMU_MODEL_", models | ({"AUTO"} if models else set()))


def _tpm(emulators: Sequence[Emulator], vtpm: bool) -> dict[str, bool]:
    models = {word for emulator in emulators for word in emulator.tpm_models} if vtpm else set()
    versions = {word for emulator in emulators for word in emulator.tpm_versions} if vtpm else set()
    return {
        os_traits.COMPUTE_SECURITY_TPM_TIS: "tpm-tis" in models,
        os_traits.COMPUTE_SECURITY_TPM_CRB: "tpm-crb" in models,
        os_traits.COMPUTE_SECURITY_TPM_1_2: "1.2" in versions,
        os_traits.COMPUTE_SECURITY_TPM_2_0: "2.0" in versions,
    }


def _choices(prefix: str, words: Iterable[str]) -> dict[str, bool]:
    """Return all standard traits that begin with ``prefix``: true for those that ``words`` name; a
    word without a trait is dropped.
    """
    has = {prefix + word.upper().replace("-", "_") for word in words}
    return {trait: trait in has for trait in _standard(prefix)}


@lru_cache
def _standard(prefix: str) -> tuple[str, ...]:
    return tuple(sorted(set(os_traits.get_traits(prefix)) - _NOT_EMULATED))
