"""What a compute service on libvirt can do for guests, as traits (nova's libvirt driver is the measure of what it can)."""

from collections.abc import Collection, Mapping

import os_traits

from agent.errors import DriverError
from drivers.libvirt.raw_capabilities import RawCapabilities
from drivers.libvirt.xml import parse

_ALWAYS = (
    os_traits.COMPUTE_ACCELERATORS, os_traits.COMPUTE_DEVICE_TAGGING, os_traits.COMPUTE_NET_ATTACH_INTERFACE,
    os_traits.COMPUTE_NET_ATTACH_INTERFACE_WITH_TAG, os_traits.COMPUTE_REMOTE_MANAGED_PORTS, os_traits.COMPUTE_RESCUE_BFV,
    os_traits.COMPUTE_SOCKET_PCI_NUMA_AFFINITY, os_traits.COMPUTE_STORAGE_VIRTIO_FS, os_traits.COMPUTE_TRUSTED_CERTS,
    os_traits.COMPUTE_VOLUME_ATTACH_WITH_TAG, os_traits.COMPUTE_VOLUME_EXTEND, os_traits.COMPUTE_VOLUME_MULTI_ATTACH,
)  # fmt: skip
_NEVER = (
    os_traits.COMPUTE_SAME_HOST_COLD_MIGRATE, os_traits.COMPUTE_EPHEMERAL_ENCRYPTION, os_traits.COMPUTE_EPHEMERAL_ENCRYPTION_LUKS,
    os_traits.COMPUTE_EPHEMERAL_ENCRYPTION_PLAIN,
)  # fmt: skip
# With the libvirt that brought it.
_SINCE = {
    os_traits.COMPUTE_SECURITY_STATELESS_FIRMWARE: 8_006_000,
    os_traits.COMPUTE_ADDRESS_SPACE_PASSTHROUGH: 8_007_000,
    os_traits.COMPUTE_ADDRESS_SPACE_EMULATED: 8_007_000,
}
_IMAGES = "COMPUTE_IMAGE_TYPE_"
# What is handed to guests as it is, or turned into a disk of theirs.
_IMAGE_TYPES = frozenset({"AKI", "AMI", "ARI", "ISO", "QCOW2", "RAW"})


def offered(answers: RawCapabilities, excluded_images: Collection[str], *, file_backed_memory: bool, raw_images_only: bool = False) -> Mapping[str, bool]:
    """The traits, by what libvirt says it is. ``excluded_images``: types of images that the operator does not want here; ``file_backed_memory``: whether
    files back the memory of guests; ``raw_images_only``: disks cannot be made from QCOW2.
    """
    excluded = {one.strip().upper() for one in excluded_images}
    types = {trait.removeprefix(_IMAGES) for trait in os_traits.get_traits(_IMAGES)}
    return {
        **dict.fromkeys(_ALWAYS, True),
        **dict.fromkeys(_NEVER, False),
        os_traits.COMPUTE_MEM_BACKING_FILE: file_backed_memory,
        **{trait: answers.libvirt_version >= since for trait, since in _SINCE.items()},
        **{_IMAGES + one: one in _IMAGE_TYPES - excluded - ({"QCOW2"} if raw_images_only else set()) for one in sorted(types)},
        **_secure_boot(answers),
    }


def _secure_boot(answers: RawCapabilities) -> Mapping[str, bool]:
    """Whether there is a firmware for it, by any emulator; nothing where no emulator says."""
    said = []
    for (architecture, machine), xml in answers.domain_capabilities.items():
        try:
            root = parse(xml, f"domain capabilities of {architecture} {machine}", "domainCapabilities")
        except DriverError:
            # The traits of the facts are incomplete for the same reason, and tell it.
            continue
        values = root.findall("os/loader/enum[@name='secure']/value")
        said.append(any((value.text or "").strip() == "yes" for value in values))
    return {os_traits.COMPUTE_SECURITY_UEFI_SECURE_BOOT: any(said)} if said else {}
