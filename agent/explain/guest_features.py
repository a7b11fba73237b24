"""What nova's scheduler requires for features of a guest: encrypted memory, persistent memory, a
TPM, secure boot, sound and others, as nova 34 translates flavor and image. Pure.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import os_resource_classes as orc
import os_traits

from agent.model.names import printable
from agent.numa.flavor_and_image import FlavorAndImage, boolean
from agent.tracker.errors import FlavorImageConflict, InvalidTrackerRequest

MEMORY_TRAITS = {
    "amd-sev": os_traits.HW_CPU_X86_AMD_SEV,
    "amd-sev-es": "HW_CPU_X86_AMD_SEV_ES",
    "amd-sev-snp": "HW_CPU_X86_AMD_SEV_SNP",
    "intel-tdx": "HW_CPU_X86_INTEL_TDX",
}
"""By the model of memory encryption, of which the first is the default."""
TPM_TRAITS = {
    "1.2": os_traits.COMPUTE_SECURITY_TPM_1_2,
    "2.0": os_traits.COMPUTE_SECURITY_TPM_2_0,
}
TPM_MODEL_TRAITS = {
    "tpm-tis": "COMPUTE_SECURITY_TPM_TIS",
    "tpm-crb": "COMPUTE_SECURITY_TPM_CRB",
}
"""The first is the default."""
ADDRESS_TRAITS = {
    "passthrough": "COMPUTE_ADDRESS_SPACE_PASSTHROUGH",
    "emulate": "COMPUTE_ADDRESS_SPACE_EMULATED",
}
SECRET_SECURITY = ("user", "host", "deployment")
"""Who may use the secret of a TPM; the first is the default."""
SECURE_BOOT = ("required", "disabled", "optional")
DISK_FORMATS = ("plain", "luks", "luksv2")
SOUND_MODELS = ("sb16", "es1370", "pcspk", "ac97", "ich6", "ich9", "usb", "virtio")


@dataclass(frozen=True, slots=True)
class FeatureRequest:
    """What the features of one guest add to the query."""

    resources: Mapping[str, int]
    """Class to amount, for the group without a suffix."""
    traits: frozenset[str]
    """Required of that group."""
    root_traits: frozenset[str]
    """Required of the root."""


def feature_request(settings: FlavorAndImage) -> FeatureRequest:
    """Return what the features of the guest add to the query.

    :raises InvalidTrackerRequest: flavor and image contradict each other, or have a value that does
        not exist.
    """
    labels = [label.strip() for label in (settings.flavor("pmem") or "").split(",")]
    resources = Counter(orc.normalize_name(f"PMEM_NAMESPACE_{label}") for label in labels if label)
    memory = frozenset(_memory_traits(settings))
    if memory:
        resources[orc.MEM_ENCRYPTION_CONTEXT] = 1
    return FeatureRequest(
        dict(resources),
        memory | frozenset((*_tpm_traits(settings), *_other_traits(settings))),
        frozenset(_root_traits(settings)),
    )


def _memory_traits(settings: FlavorAndImage) -> Iterator[str]:
    if _switch(settings, "mem_encryption"):
        model = _value(settings, "hw:mem_encryption_model", (*MEMORY_TRAITS,))
        yield MEMORY_TRAITS[model or next(iter(MEMORY_TRAITS))]


def _tpm_traits(settings: FlavorAndImage) -> Iterator[str]:
    version = _value(settings, "hw:tpm_version", (*TPM_TRAITS,))
    if not version:
        return
    model = _value(settings, "hw:tpm_model", (*TPM_MODEL_TRAITS,)) or next(iter(TPM_MODEL_TRAITS))
    if model == "tpm-crb" and version != "2.0":
        raise InvalidTrackerRequest(
            f"the TPM model {model} does not exist for version {version}",
            "hw:tpm_version 2.0, or the model tpm-tis",
        )
    yield TPM_TRAITS[version]
    yield TPM_MODEL_TRAITS[model]


def _other_traits(settings: FlavorAndImage) -> Iterator[str]:
    if _value(settings, "os:secure_boot", SECURE_BOOT) == "required":
        yield os_traits.COMPUTE_SECURITY_UEFI_SECURE_BOOT
    if mode := _value(settings, "hw:maxphysaddr_mode", (*ADDRESS_TRAITS,)):
        yield ADDRESS_TRAITS[mode]
    # nova ignores the property without UEFI, and has no extra spec for it.
    if boolean(settings.image("firmware_stateless")) and settings.image("firmware_type") == "uefi":
        yield "COMPUTE_SECURITY_STATELESS_FIRMWARE"
    policy = settings.flavor("pci_numa_affinity_policy") or settings.image(
        "pci_numa_affinity_policy"
    )
    if policy == "socket":
        yield os_traits.COMPUTE_SOCKET_PCI_NUMA_AFFINITY


def _root_traits(settings: FlavorAndImage) -> Iterator[str]:
    """Yield what nova's request filters require that are always on."""
    if settings.specs.get("accel:device_profile"):
        yield os_traits.COMPUTE_ACCELERATORS
    if _switch(settings, "virtio_packed_ring"):
        yield "COMPUTE_NET_VIRTIO_PACKED"
    if _switch(settings, "ephemeral_encryption"):
        yield os_traits.COMPUTE_EPHEMERAL_ENCRYPTION
        if name := _value(settings, "hw:ephemeral_encryption_format", DISK_FORMATS):
            yield f"{os_traits.COMPUTE_EPHEMERAL_ENCRYPTION}_{name.upper()}"
    if _value(settings, "hw:sound_model", SOUND_MODELS) == "virtio":
        yield "COMPUTE_SOUND_MODEL_VIRTIO"
    if settings.flavor("tpm_version") or settings.image("tpm_version"):
        # Only flavors have it.
        key = "hw:tpm_secret_security"
        security = _known(key, settings.specs.get(key, ""), SECRET_SECURITY) or SECRET_SECURITY[0]
        yield f"COMPUTE_SECURITY_TPM_SECRET_SECURITY_{security.upper()}"


def _switch(settings: FlavorAndImage, name: str) -> bool:
    """Return whether flavor or image turn a feature on.

    :raises FlavorImageConflict: one turns it on, the other off.
    """
    flavor, image = settings.flavor(name), settings.image(name)
    if flavor is not None and image is not None and boolean(flavor) != boolean(image):
        raise _conflict(f"hw_{name}", image, flavor)
    return boolean(flavor) or boolean(image)


def _value(settings: FlavorAndImage, key: str, allowed: Sequence[str]) -> str:
    """Return the value of an extra spec, or of the image property of that name; empty if neither is
    there.

    :raises InvalidTrackerRequest: it is not one of ``allowed``, or the two differ.
    """
    property_key = key.replace(":", "_")
    flavor = _known(key, settings.specs.get(key, ""), allowed)
    image = _known(property_key, settings.properties.get(property_key, ""), allowed)
    if flavor and image and flavor != image:
        raise _conflict(property_key, image, flavor)
    return flavor or image


def _known(key: str, value: str, allowed: Sequence[str]) -> str:
    if value and value not in allowed:
        raise InvalidTrackerRequest(
            printable(f"{key} = {value}: not known"), f"allowed: {', '.join(allowed)}"
        )
    return value


def _conflict(key: str, image: str, flavor: str) -> FlavorImageConflict:
    return FlavorImageConflict(
        printable(f"{key} = {image}: the flavor says {flavor}"),
        "the same in flavor and image, or only in one",
    )
