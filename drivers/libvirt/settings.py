"""The settings of the driver, from [libvirt] and related options."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, cast

from oslo_config import cfg

from agent.errors import ConfigError, ConfigErrors
from agent.model.facts import parse_cpu_list
from agent.model.names import printable

CpuMode = Literal["host", "custom", "none"]
DiskKind = Literal["folder", "lvm", "rbd"]

TPM_SECRETS = ("user", "host", "deployment")
HOST_MODES = ("host-model", "host-passthrough", None)


@dataclass(frozen=True, slots=True)
class DiskSettings:
    """Where the disks of guests are: in a folder, an LVM volume group or a Ceph pool."""

    kind: DiskKind
    folder: Path
    volume_group: str = ""
    pool: str = ""
    ceph_conf: str = ""
    """Empty: Ceph's default."""
    ceph_user: str = ""
    """Empty: Ceph's default."""
    image_cache: Path | None = None
    """The folder of cached images whose size is reserved; None for no reservation."""


@dataclass(frozen=True, slots=True)
class LibvirtSettings:
    """What the operator's options say about the host and its guests."""

    uri: str
    virt_type: str
    cpu_mode: CpuMode
    """``host``: guests have the host's CPU."""
    cpu_models: tuple[str, ...]
    cpu_flags: tuple[str, ...]
    """Features to add (``+``) or remove (``-``)."""
    disk: DiskSettings
    file_backed_memory: int
    """MiB; 0 for ordinary memory."""
    vtpm: bool
    """Guests may have emulated TPMs."""
    tpm_secrets: frozenset[str]
    """Where the secrets of emulated TPMs may be kept, in the words of the traits; empty without
    such TPMs.
    """
    sysfs: Path
    """Where the kernel's sysfs is read."""
    machines: tuple[tuple[str, str], ...] = ()
    """Architecture and default machine type of guests."""
    raw_images_only: bool = False
    """Disks cannot be made from other images."""
    power_managed_cpus: frozenset[int] = frozenset()
    """CPUs that are counted even while they are offline."""

    @classmethod
    def from_options(cls, conf: cfg.ConfigOpts) -> Self:
        """Return the settings that the options set.

        :raises ConfigErrors: they contradict each other.
        """
        options = conf.libvirt
        mode = cast(CpuMode, "host" if options.cpu_mode in HOST_MODES else options.cpu_mode)
        errors = []
        if (mode == "custom") != bool(options.cpu_models):
            shown = printable(", ".join(options.cpu_models)) or "nothing"
            errors.append(
                ConfigError(
                    f"[libvirt] cpu_models: {shown}, with cpu_mode = {options.cpu_mode or 'unset'}",
                    "cpu_mode = custom needs cpu_models, and no other mode takes them",
                )
            )
        if options.images_type == "lvm" and not options.images_volume_group:
            errors.append(
                ConfigError(
                    "[libvirt] images_type = lvm, and no images_volume_group",
                    "name the volume group",
                )
            )
        ConfigErrors.raise_if_any(errors)
        return cls(
            uri=options.connection_uri or "qemu:///system",
            virt_type=options.virt_type,
            cpu_mode=mode,
            cpu_models=tuple(options.cpu_models),
            cpu_flags=tuple(options.cpu_model_extra_flags),
            disk=_disk(conf),
            file_backed_memory=options.file_backed_memory,
            vtpm=options.swtpm_enabled,
            tpm_secrets=frozenset(
                place.strip().upper()
                for place in options.supported_tpm_secret_security
                if options.swtpm_enabled
            ),
            sysfs=Path(conf.host.sysfs_root),
            machines=tuple(_machine(text) for text in options.hw_machine_type),
            power_managed_cpus=_power_managed_cpus(conf),
            raw_images_only=options.images_type in ("lvm", "rbd") and not conf.force_raw_images,
        )


def option_warnings(conf: cfg.ConfigOpts) -> Iterator[str]:
    """Yield one line for each option that is valid but does something else than it seems to, or
    keeps nova itself from starting.
    """
    options = conf.libvirt
    if options.file_backed_memory:
        ratio = conf.ram_allocation_ratio or conf.initial_ram_allocation_ratio
        if ratio != 1.0:
            what = f"a ratio of MEMORY_MB of {ratio:g}: such memory cannot be overcommitted"
            yield (
                f"[libvirt] file_backed_memory with {what}; set [DEFAULT] ram_allocation_ratio = "
                "1.0"
            )
        if conf.reserved_host_memory_mb:
            what = (
                f"{conf.reserved_host_memory_mb} MiB of the files are reserved for a host that "
                "does not use them"
            )
            yield (
                f"[libvirt] file_backed_memory with [DEFAULT] reserved_host_memory_mb: {what}; "
                "set it to 0"
            )
    if options.images_type == "rbd" and not conf.force_raw_images:
        yield (
            "[libvirt] images_type = rbd with [DEFAULT] force_raw_images = false, with which nova "
            "does not start: images have to be raw; set it to true"
        )
    if conf.workarounds.reserve_disk_resource_for_image_cache and options.images_type in (
        "lvm",
        "rbd",
    ):
        what = (
            f"has no effect with [libvirt] images_type = {options.images_type}, because the "
            "cached images are on another disk than the guests"
        )
        yield f"[workarounds] reserve_disk_resource_for_image_cache {what}"
    if unknown := [
        place for place in options.supported_tpm_secret_security if place.strip() not in TPM_SECRETS
    ]:
        yield (
            f"[libvirt] supported_tpm_secret_security: {printable(', '.join(unknown))} is none of "
            f"{', '.join(TPM_SECRETS)}"
        )


def _disk(conf: cfg.ConfigOpts) -> DiskSettings:
    """Return where the disks of guests are."""
    options = conf.libvirt
    kind = cast(
        DiskKind, options.images_type if options.images_type in ("lvm", "rbd") else "folder"
    )
    folder = Path(conf.instances_path).absolute()
    cache = (
        folder / conf.image_cache.subdirectory_name
        if conf.workarounds.reserve_disk_resource_for_image_cache and kind == "folder"
        else None
    )
    return DiskSettings(
        kind,
        folder,
        options.images_volume_group or "",
        options.images_rbd_pool,
        options.images_rbd_ceph_conf,
        options.rbd_user or "",
        cache,
    )


def _power_managed_cpus(conf: cfg.ConfigOpts) -> frozenset[int]:
    """Return the dedicated CPUs without CPU 0, which nova never takes offline; empty unless nova's
    power management takes CPUs offline.
    """
    options = conf.libvirt
    if not options.cpu_power_management or options.cpu_power_management_strategy != "cpu_state":
        return frozenset()
    try:
        return parse_cpu_list(conf.compute.cpu_dedicated_set or "") - {0}
    except ValueError:
        # The core reports what is wrong with the set.
        return frozenset()


def _machine(text: str) -> tuple[str, str]:
    """Split ``arch=machine``; without an architecture it is empty, as in nova."""
    architecture, equals, machine = text.strip().partition("=")
    return (architecture.strip(), machine.strip()) if equals else ("", architecture)
