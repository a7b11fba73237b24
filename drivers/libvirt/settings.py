"""What the operator says in [libvirt], as far as the driver needs it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, cast

from oslo_config import cfg

from agent.conf import libvirt
from agent.errors import ConfigError, ConfigErrors
from agent.model.names import printable

CpuMode = Literal["host", "custom", "none"]
DiskKind = Literal["folder", "lvm", "rbd"]

HOST_MODES = ("host-model", "host-passthrough", None)


@dataclass(frozen=True, slots=True)
class DiskSettings:
    """Where the disks of guests are: in a folder, an LVM volume group or a Ceph pool. Empty texts: Ceph's own defaults."""

    kind: DiskKind
    folder: Path
    volume_group: str = ""
    pool: str = ""
    ceph_conf: str = ""
    ceph_user: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """``cpu_mode`` host: guests have the host's CPU. ``file_backed_memory``: MiB, 0 if memory is memory. ``sysfs``: where the kernel is asked."""

    uri: str
    virt_type: str
    cpu_mode: CpuMode
    cpu_models: tuple[str, ...]
    cpu_flags: tuple[str, ...]
    disk: DiskSettings
    file_backed_memory: int
    vtpm: bool
    sysfs: Path

    @classmethod
    def from_options(cls, conf: cfg.ConfigOpts) -> Self:
        """The settings that the options say.

        :raises ConfigErrors: they contradict each other.
        """
        options = conf[libvirt.GROUP]
        mode = cast(CpuMode, "host" if options.cpu_mode in HOST_MODES else options.cpu_mode)
        errors = []
        if (mode == "custom") != bool(options.cpu_models):
            shown = printable(", ".join(options.cpu_models)) or "nothing"
            what = f"[libvirt] cpu_models: {shown}, with cpu_mode = {options.cpu_mode or 'unset'}"
            errors.append(ConfigError(what, "cpu_mode = custom needs cpu_models, and no other mode takes them"))
        if options.images_type == "lvm" and not options.images_volume_group:
            errors.append(ConfigError("[libvirt] images_type = lvm, and no images_volume_group", "name the volume group"))
        if errors:
            raise ConfigErrors(errors)
        return cls(
            uri=options.connection_uri or "qemu:///system",
            virt_type=options.virt_type,
            cpu_mode=mode,
            cpu_models=tuple(options.cpu_models),
            cpu_flags=tuple(options.cpu_model_extra_flags),
            disk=_disk(conf),
            file_backed_memory=options.file_backed_memory,
            vtpm=options.swtpm_enabled,
            sysfs=Path(conf.host.sysfs_root),
        )


def _disk(conf: cfg.ConfigOpts) -> DiskSettings:
    options = conf[libvirt.GROUP]
    kind = cast(DiskKind, options.images_type if options.images_type in ("lvm", "rbd") else "folder")
    return DiskSettings(
        kind, Path(conf.instances_path).absolute(), options.images_volume_group or "", options.images_rbd_pool, options.images_rbd_ceph_conf,
        options.rbd_user or "",
    )  # fmt: skip
